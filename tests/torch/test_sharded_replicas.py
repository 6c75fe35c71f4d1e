"""Replicas whose processes share a model: sharded in different ways, resized, killed, and launched by torch."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("torch", reason="make test installs it")

import torch

from muster.contract.exits import ReplicaExit
from muster.contract.run.run_document import Manifest
from muster.replica.group.cause import Cause
from muster.replica.group.group_folder import GroupFolder
from muster.replica.group.spawning import spawn_with_torch
from tests.support.command_server import Command
from tests.support.forked_replicas import ForkedRun
from tests.support.launched_groups import Launcher, instances_of_a_job, told
from tests.support.source_patch import ROOT


@dataclass
class Replica:
    """How many processes a replica has, and how they share the model."""

    processes: int = 1
    layout: str = ""


ALONE = Replica()
RUNS = {
    "fp32-alone": [ALONE] * 3,
    "int8-alone": [ALONE] * 3,
    "fp32-sharded": [ALONE, Replica(2, "copied"), Replica(4, "fsdp")],
    "int8-sharded": [Replica(4, "hsdp"), Replica(4, "tensor"), Replica(2, "columns")],
    "fp32-rerun": [ALONE, ALONE, Replica(2, "fsdp")],
}


def begun(run: ForkedRun, codec: str, replicas: Sequence[Replica], dies_at: str) -> list[Command]:
    """The processes of a run; the last one of the last replica dies when it writes an object like `dies_at`."""
    layouts = {str(rank): replica.layout for rank, replica in enumerate(replicas)}
    run.write_document(
        "tests.support.jobs.sharded_trainers:train",
        replicas=len(replicas),
        kwargs={"layouts": layouts, "rounds": 3, "algorithm": {"sync_every": 2, "codec": codec}},
        snapshot_rounds=2,
    )
    last = len(replicas) - 1
    return [
        process
        for rank, replica in enumerate(replicas)
        for process in run.start_group(replica.processes, rank, dies_at=dies_at if rank == last else "")
    ]


def checksums(run: ForkedRun) -> list[str | None]:
    """The checksums of the global parameters in each attempt that has succeeded."""
    paths = sorted(run.root.glob("*/output/data/manifest.json"))
    return [Manifest.from_json(path.read_bytes(), str(path)).checksum for path in paths]


def test_the_results_have_the_bytes_of_unsharded_replicas_even_after_the_death_of_a_process(
    forked: Callable[[str], ForkedRun],
) -> None:
    runs = {name: forked(name) for name in RUNS}
    processes: dict[str, list[Command]] = {}
    for name, replicas in RUNS.items():
        # In the middle of the second round: the first process has stored its part, or will not.
        dies_at = "contributions/00002/00000002-*-0001" if name == "fp32-rerun" else ""
        processes[name] = begun(runs[name], name.partition("-")[0], replicas, dies_at)
    rerun = runs["fp32-rerun"]
    *others, first, second = processes["fp32-rerun"]
    assert rerun.ended(second)[0] == -signal.SIGKILL
    assert rerun.ended(first)[0] == ReplicaExit.RENDEZVOUS
    failure = GroupFolder(rerun.base(2)).reported(0)
    assert failure is not None
    assert failure.text.startswith("Another process of this replica has ended: ")
    processes["fp32-rerun"] = [*others, *rerun.start_group(2, 2, attempt=2)]
    for name, running in processes.items():
        for process in running:
            code, out, error = runs[name].ended(process)
            assert code == ReplicaExit.DONE, f"{name}: {out}{error}"
    models = {name: run.meeting_place / "output" / "model" / "model.safetensors" for name, run in runs.items()}
    for name, run in runs.items():
        alone = f"{name.partition('-')[0]}-alone"
        assert checksums(run) == checksums(runs[alone])[:1] * 3, name
        # Every replica of int8-sharded has several processes: a group wrote its model.
        assert models[name].read_bytes() == models[alone].read_bytes(), name
    arrays = load_file(models["int8-sharded"])
    assert arrays["0.weight"].shape == (900, 37)
    assert arrays["scale"].shape == ()
    assert arrays["1.num_batches_tracked"].dtype == np.int64


STOPS = (6, 10)
SIZES = {"unbroken": (1,), "grows": (1, 2), "shrinks": (2, 1), "changes": (2, 3, 2)}
"""The numbers of processes of each attempt of a run's replica; all attempts but the last are stopped."""


def test_parameters_and_optimizer_continue_whatever_the_number_of_processes(forked: Callable[[str], ForkedRun]) -> None:
    runs = {name: forked(name) for name in SIZES}
    for name, sizes in SIZES.items():
        stops = {str(attempt): STOPS[attempt - 1] for attempt in range(1, len(sizes))}
        runs[name].write_document(
            "tests.support.jobs.resized_trainer:train", kwargs={"rounds": 4, "stops": stops}, snapshot_rounds=2
        )
    for attempt in (1, 2, 3):
        running = {
            # The attempts share a tree, as the pods of a job do.
            name: runs[name].start_group(sizes[attempt - 1], 0, attempt, SAGEMAKER_BASE_DIR=str(runs[name].base()))
            for name, sizes in SIZES.items()
            if len(sizes) >= attempt
        }
        for name, processes in running.items():
            expected = ReplicaExit.DONE if attempt == len(SIZES[name]) else ReplicaExit.STOPPED
            for process in processes:
                code, out, error = runs[name].ended(process)
                assert code == expected, f"{name}, attempt {attempt}: {out}{error}"

    def left(name: str) -> dict[str, object]:
        found: dict[str, object] = torch.load(runs[name].base() / "output" / "data" / "left.pt")
        return found

    def model(name: str) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
        return load_file(runs[name].meeting_place / "output" / "model" / "model.safetensors")

    wanted, parameters = left("unbroken"), model("unbroken")
    for name in SIZES:
        found = left(name)
        assert (found["rate"], found["step"]) == (wanted["rate"], wanted["step"]), name
        for moment, other in zip(found["moments"], wanted["moments"], strict=True):  # type: ignore[call-overload]
            torch.testing.assert_close(moment, other, rtol=1e-3, atol=1e-6, msg=name)
        for tensor, values in model(name).items():
            np.testing.assert_allclose(values, parameters[tensor], rtol=1e-3, atol=1e-5, err_msg=name)


# --- Groups of processes that torch's elastic launcher starts ---------------------------------------------------------


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
