"""Replicas of one, two and four real processes in one run, whose models are sharded in different ways."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file

from muster.contract.run.exits import ReplicaExit
from muster.contract.run.run_document import Manifest, RunDocument
from muster.replica.group.board import LocalBoard
from muster.replica.group.group_folder import GroupFolder
from muster.replica.group.launcher import free_port
from muster.replica.group.network_board import BoardServer

pytest.importorskip("torch", reason="make test installs it")

if TYPE_CHECKING:
    from tests.support.jobs.forked_processes import Process

ROOT = Path(__file__).resolve().parents[3]
ROUNDS = 3


@dataclass
class Replica:
    """How many processes a replica has, and how they share the model."""

    processes: int = 1
    layout: str = ""


ALONE = Replica()


class Runs:
    """Runs whose processes are forked from one that has imported PyTorch, all at the same time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._processes: list[Process] = []
        self._closing = ExitStack()

    def add(self, name: str, replicas: Sequence[Replica], codec: str) -> list[list[int]]:
        """Add a run; returns the numbers of its processes, by replica."""
        layouts = {str(rank): replica.layout for rank, replica in enumerate(replicas)}
        document = RunDocument(
            run="test",
            plan_digest="0",
            replicas=len(replicas),
            trainer="tests.support.jobs.sharded_trainers:train",
            kwargs={"layouts": layouts, "rounds": ROUNDS, "algorithm": {"sync_every": 2, "codec": codec}},
            rendezvous_uri=f"{(self.root / name / 'rendezvous').as_uri()}/",
            min_participants=len(replicas),
            grace_seconds=60.0,
            timeout_seconds=120.0,
            snapshot_rounds=2,
        )
        (self.root / name).mkdir()
        (self.root / name / "document.json").write_bytes(document.to_json())
        return [self.start(name, rank, replica) for rank, replica in enumerate(replicas)]

    def start(self, name: str, rank: int, replica: Replica, attempt: int = 1, after: Sequence[int] = ()) -> list[int]:
        """Add the processes of an attempt; returns their numbers. They begin when those of `after` have ended."""
        base = self.root / name / f"{rank}-{attempt}"
        base.mkdir()
        variables = {
            "MUSTER_DOCUMENT": (self.root / name / "document.json").as_uri(),
            "MUSTER_RUN": "test",
            "MUSTER_RANK": str(rank),
            "MUSTER_ATTEMPT": str(attempt),
            "SAGEMAKER_BASE_DIR": str(base),
        }
        if replica.processes > 1:
            server = BoardServer(LocalBoard(), ("127.0.0.1", 0))
            self._closing.callback(server.close)
            variables |= {
                "MUSTER_GROUP_BOARD": f"127.0.0.1:{server.port}",
                "MUSTER_GROUP_FOLDER": str(base),
                "WORLD_SIZE": str(replica.processes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_port()),
            }
        numbers = [len(self._processes) + process for process in range(replica.processes)]
        for process in map(str, range(replica.processes)):
            own = {**variables, "RANK": process, "LOCAL_RANK": process}
            self._processes.append({"variables": own, "dies_at": None, "code": 0, "after": [*after]})
        return numbers

    def lose(self, victim: int, dies_at: str, others: Sequence[int]) -> None:
        """A signal kills a process when it writes an object like `dies_at`, and its group fails with it."""
        self._processes[victim] |= {"dies_at": dies_at, "code": -signal.SIGKILL}
        for other in others:
            self._processes[other]["code"] = ReplicaExit.RENDEZVOUS

    def train(self) -> None:
        """Run all processes; each must end as it is meant to."""
        (self.root / "processes").write_text("".join(json.dumps(process) + "\n" for process in self._processes))
        with self._closing:
            forking = subprocess.run(
                [sys.executable, "-m", "tests.support.jobs.forked_processes", str(self.root / "processes")],
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
                capture_output=True,
                check=False,
                text=True,
                timeout=240,
            )
        assert forking.returncode == 0, forking.stdout + forking.stderr

    def model(self, name: str) -> Path:
        """The run's model."""
        return self.root / name / "rendezvous" / "output" / "model" / "model.safetensors"

    def checksums(self, name: str) -> list[str | None]:
        """The checksums of the global parameters in each attempt that has succeeded."""
        paths = sorted((self.root / name).glob("*/output/data/manifest.json"))
        return [Manifest.from_json(path.read_bytes(), str(path)).checksum for path in paths]


def test_the_results_have_the_bytes_of_unsharded_replicas_even_after_the_death_of_a_process(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for codec in ("fp32", "int8"):
        runs.add(f"{codec}-alone", [ALONE] * 3, codec)
    runs.add("fp32-sharded", [ALONE, Replica(2, "copied"), Replica(4, "fsdp")], "fp32")
    runs.add("int8-sharded", [Replica(4, "hsdp"), Replica(4, "tensor"), Replica(2, "columns")], "int8")
    sharded = Replica(2, "fsdp")
    *_, (first, second) = runs.add("fp32-rerun", [ALONE, ALONE, sharded], "fp32")
    # In the middle of the second round: the first process has stored its part, or will not.
    runs.lose(second, "contributions/00002/00000002-*-0001", [first])
    runs.start("fp32-rerun", 2, sharded, attempt=2, after=[first, second])
    runs.train()
    alone = {codec: runs.checksums(f"{codec}-alone")[0] for codec in ("fp32", "int8")}
    for name in ("fp32-alone", "fp32-sharded", "fp32-rerun", "int8-alone", "int8-sharded"):
        assert runs.checksums(name) == [alone[name.partition("-")[0]]] * 3
    failure = GroupFolder(tmp_path / "fp32-rerun" / "2-1").reported(0)
    assert failure is not None
    assert failure.text.startswith("Another process of this replica has ended: ")
    # Every replica of int8-sharded has several processes: a group wrote its model.
    for name in ("fp32-sharded", "fp32-rerun", "int8-sharded"):
        assert runs.model(name).read_bytes() == runs.model(f"{name.partition('-')[0]}-alone").read_bytes()
    arrays = load_file(runs.model("int8-sharded"))
    assert arrays["0.weight"].shape == (900, 37)
    assert arrays["scale"].shape == ()
    assert arrays["1.num_batches_tracked"].dtype == np.int64
