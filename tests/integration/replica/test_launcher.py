"""The launcher of a replica's processes, in this process; they are real, but train nothing."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from muster.contract.exits import ReplicaExit
from muster.replica.group import process_watch, spawning
from muster.replica.group.board import ENDED, InnerGroup, LocalBoard, has
from muster.replica.group.cause import Cause, End
from muster.replica.group.group_folder import GroupFolder
from muster.replica.group.group_process import STOPPED_SECONDS, GroupProcess
from muster.replica.group.instances import Instances
from muster.replica.group.launched_group import Ends, Group, Master
from muster.replica.group.launcher import BOARD_PORT
from muster.replica.group.network_board import BoardServer
from tests.support.launched_groups import IMPATIENT, Launcher, addresses, is_alive
from tests.support.source_patch import ROOT
from tests.support.waiting import wait_until


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    # The launcher adds to the variables of its process, which is a container's own elsewhere.
    monkeypatch.setattr(os, "environ", {**os.environ, "PYTHONPATH": str(ROOT)})
    launcher = Launcher()
    yield launcher
    launcher.end()


def test_a_failure_of_one_ends_all_and_is_the_reason(launch: Launcher) -> None:
    one = launch(3, _1="fails")
    pids = one.pids(range(3))
    assert one.cause() == Cause(ReplicaExit.USER_CODE, "process 1: no data")
    assert not any(map(is_alive, pids))


def test_a_process_that_a_signal_kills_is_the_reason_and_not_what_its_peer_says(launch: Launcher) -> None:
    one = launch(2, _0="complains", _1="dies")
    assert one.cause() == Cause(ReplicaExit.KILLED, "process 1 was killed by SIGKILL")


def test_a_process_that_ends_with_0_before_its_trainer_returned_is_an_error(launch: Launcher) -> None:
    for leaver in (0, 1):
        cause = launch(2, **{f"_{leaver}": "leaves", f"_{1 - leaver}": "returns"}).cause()
        assert cause is not None
        reason = f"process {leaver} ended with exit code 0"
        assert (cause.code, cause.text.startswith(reason)) == (ReplicaExit.USER_CODE, True), leaver


def test_a_process_that_the_spawner_reaps_before_the_launcher_looks_is_not_waited_for(
    launch: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(process_watch, "LOOK_SECONDS", 0.4)
    monkeypatch.setattr(process_watch, "GONE_SECONDS", 0.5)
    cause = launch(2, _0="returns", _1="leaves").cause()
    assert cause is not None
    assert cause.text.startswith("process 1 ended with exit code 0 before the trainer returned")


def test_a_failure_that_was_reported_ends_the_others_although_the_spawner_reaps_the_process_before_the_launcher_looks(
    launch: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawning, "_POLL_SECONDS", 0.0)
    monkeypatch.setattr(process_watch, "LOOK_SECONDS", 0.4)
    monkeypatch.setattr(process_watch, "GONE_SECONDS", 600.0)
    monkeypatch.setattr(spawning, "END_SECONDS", 600.0)
    assert launch(2, _0="hangs", _1="fails").cause() == Cause(ReplicaExit.USER_CODE, "process 1: no data")


def test_the_process_that_ended_first_is_the_reason_although_the_spawner_reaps_it_before_the_launcher_looks(
    launch: Launcher,
) -> None:
    def spawn(group: Group, master: Master) -> Ends:
        children = [
            subprocess.Popen(group.command, env={**os.environ, **spawning.group_variables(group, master, local_rank)})
            for local_rank in range(group.count)
        ]
        ended = time.time()
        children[1].wait()
        children[0].kill()
        time.sleep(10 * process_watch.LOOK_SECONDS)  # the launcher sees the end of process 0, and must not judge by it
        children[0].wait()
        return {0: End(time.time(), -signal.SIGKILL), 1: End(ended, -signal.SIGKILL)}

    cause = launch(2, spawner=spawn, _0="hangs", _1="dies").cause()
    assert cause == Cause(ReplicaExit.KILLED, "process 1 was killed by SIGKILL")


def test_a_peer_that_is_dead_is_not_waited_for(tmp_path: Path) -> None:
    folder = GroupFolder(tmp_path)
    peer = subprocess.Popen(["true"])
    (tmp_path / "1.pid").write_text(str(peer.pid))
    peer.wait()
    began = time.monotonic()
    GroupProcess(InnerGroup(0, 2, 0), LocalBoard(), folder).wait_for_stops()
    assert time.monotonic() - began < STOPPED_SECONDS / 2


def test_processes_whose_trainers_return_have_succeeded(launch: Launcher) -> None:
    assert launch(2, _0="returns", _1="returns").cause() is None


def test_a_process_that_hangs_is_killed_when_another_one_has_failed(launch: Launcher) -> None:
    one = launch(2, _0="fails", _1="hangs")
    pids = one.pids(range(2))
    assert one.cause() == Cause(ReplicaExit.USER_CODE, "process 0: no data")
    assert not any(map(is_alive, pids))


def test_a_process_that_never_returns_is_named_and_ended(launch: Launcher) -> None:
    one = launch(2, patience=replace(IMPATIENT, returned=0.3), _0="returns")
    pids = one.pids(range(2))
    text = "process 1 is hung: it is still in the trainer 0.3 s after process 0 has returned from it"
    assert one.cause() == Cause(ReplicaExit.USER_CODE, text)
    assert not any(map(is_alive, pids))


def test_when_the_job_is_stopped_all_have_time_to_save(launch: Launcher) -> None:
    one = launch(3)
    one.pids(range(3))
    one.stop.set()
    cause = one.cause()
    assert cause is not None
    assert cause.code == ReplicaExit.STOPPED
    assert cause.text.endswith("stopped when [0, 1, 2] had saved")


def test_a_process_that_does_not_stop_is_killed_before_sagemaker_does(launch: Launcher) -> None:
    one = launch(2, patience=replace(IMPATIENT, stop=1.0), _0="hangs")
    pids = one.pids(range(2))
    one.stop.set()
    wait_until("the other one saves", lambda: has(one.board, "saved/1"))
    assert one.cause() == Cause(ReplicaExit.KILLED, "process 0 was killed: it still ran 1 s after SIGTERM")
    assert not any(map(is_alive, pids))


@dataclass
class FirstInstance:
    """The first instance of two as the second one sees it."""

    instances: Instances
    board: LocalBoard


@pytest.fixture
def first() -> Iterator[FirstInstance]:
    hosts = addresses()
    board = LocalBoard()
    board.put("master", [hosts[0], 29500, 2])
    server = BoardServer(board, (hosts[0], BOARD_PORT))
    yield FirstInstance(Instances(hosts, hosts[1]), board)
    server.close()


def test_a_failure_is_passed_on_to_the_other_instances(launch: Launcher, first: FirstInstance) -> None:
    cause = launch(2, first.instances, _3="fails").cause()
    text = f"process 3 on {first.instances.current}: no data"
    assert cause == Cause(ReplicaExit.USER_CODE, text)
    assert first.board.get(ENDED, 0.0) == [ReplicaExit.USER_CODE, text]


def test_a_failure_on_another_instance_ends_this_one_and_is_its_reason(launch: Launcher, first: FirstInstance) -> None:
    one = launch(2, first.instances)
    pids = one.pids(range(2, 4))
    first.board.put(ENDED, [ReplicaExit.USER_CODE, "process 0 on algo-1: no data"])
    assert one.cause() == Cause(ReplicaExit.USER_CODE, "process 0 on algo-1: no data")
    assert not any(map(is_alive, pids))
