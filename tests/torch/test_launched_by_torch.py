"""Groups of processes that torch's elastic launcher starts, where PyTorch is installed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("torch", reason="make test installs it")

from muster.contract.run.exits import ReplicaExit
from muster.replica.group.cause import Cause
from muster.replica.group.spawning import spawn_with_torch
from tests.support.forked_replicas import ForkedRun
from tests.support.launched_groups import Launcher, instances_of_a_job, told
from tests.support.source_patch import ROOT


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    monkeypatch.setattr(os, "environ", {**os.environ, "PYTHONPATH": str(ROOT)})
    launcher = Launcher()
    yield launcher
    launcher.end()


def test_a_process_that_a_signal_kills_is_the_reason_and_not_what_its_peer_says(launch: Launcher) -> None:
    one = launch(2, spawner=spawn_with_torch, _0="complains", _1="dies")
    assert one.cause() == Cause(ReplicaExit.KILLED, "process 1 was killed by SIGKILL")


def test_when_the_job_is_stopped_all_have_time_to_save(launch: Launcher) -> None:
    one = launch(2, spawner=spawn_with_torch)
    one.pids(range(2))
    one.stop.set()
    cause = one.cause()
    assert cause is not None
    assert (cause.code, cause.text) == (ReplicaExit.STOPPED, "process 1: stopped when [0, 1] had saved")


def test_torch_adds_up_over_the_two_instances_of_a_group(containers: ForkedRun) -> None:
    containers.write_document("tests.support.jobs.group_trainers:add_up")
    ends = [containers.ended(process) for process in instances_of_a_job(containers)]
    assert [code for code, _, _ in ends] == [0, 0], ends
    for rank, (_, out, _) in enumerate(ends):
        assert f"[0.{rank}] sum=3\n" in out
        place = told(out)[str(rank)]
        assert place["group"] == [rank, 2, 0]
        assert (place["RANK"], place["LOCAL_RANK"], place["WORLD_SIZE"]) == (str(rank), "0", "2")
        assert place["agent"] == "job-of-the-test"
        # One claim for both instances.
        assert place["seat"] == [1, 1]
    assert len({told(out)[str(rank)]["MASTER_ADDR"] for rank, (_, out, _) in enumerate(ends)}) == 1
