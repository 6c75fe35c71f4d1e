"""Replicas of one, two and four real processes in one run, whose models are sharded in different ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.run.run_document import Manifest, RunDocument
from muster.replica.group.board import LocalBoard
from muster.replica.group.launcher import free_port
from muster.replica.group.network_board import BoardServer

pytest.importorskip("torch", reason="make test installs it")

ROOT = Path(__file__).resolve().parents[3]
ROUNDS = 3


@dataclass
class Replica:
    """How many processes a replica has, and how they share the model."""

    processes: int = 1
    layout: str = ""


ALONE = Replica()


@dataclass
class Results:
    """A run in the folder `root`."""

    root: Path
    replicas: Sequence[Replica]

    def variables(self, algorithm: dict[str, Any], closing: ExitStack) -> Iterator[dict[str, str]]:
        """The variables of each process of the run."""
        layouts = {str(rank): replica.layout for rank, replica in enumerate(self.replicas)}
        document = RunDocument(
            run="test",
            plan_digest="0",
            replicas=len(self.replicas),
            trainer="tests.support.jobs.sharded_trainers:train",
            kwargs={"layouts": layouts, "rounds": ROUNDS, "algorithm": {"sync_every": 2, **algorithm}},
            rendezvous_uri=f"{(self.root / 'rendezvous').as_uri()}/",
            min_participants=len(self.replicas),
            grace_seconds=60.0,
            timeout_seconds=120.0,
            snapshot_rounds=2,
        )
        self.root.mkdir()
        (self.root / "document.json").write_bytes(document.to_json())
        for rank, replica in enumerate(self.replicas):
            base = self.root / str(rank)
            base.mkdir()
            common = {
                "MUSTER_DOCUMENT": (self.root / "document.json").as_uri(),
                "MUSTER_RUN": "test",
                "MUSTER_RANK": str(rank),
                "MUSTER_ATTEMPT": "1",
                "SAGEMAKER_BASE_DIR": str(base),
            }
            if replica.processes > 1:
                server = BoardServer(LocalBoard(), ("127.0.0.1", 0))
                closing.callback(server.close)
                common |= {
                    "MUSTER_GROUP_BOARD": f"127.0.0.1:{server.port}",
                    "MUSTER_GROUP_FOLDER": str(base),
                    "WORLD_SIZE": str(replica.processes),
                    "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": str(free_port()),
                }
            for process in map(str, range(replica.processes)):
                yield {**common, "RANK": process, "LOCAL_RANK": process}

    def checksums(self) -> set[str | None]:
        """The checksums of the replicas' global parameters."""
        paths = [self.root / str(rank) / "output" / "data" / "manifest.json" for rank in range(len(self.replicas))]
        return {Manifest.from_json(path.read_bytes(), str(path)).checksum for path in paths}


def test_the_results_have_the_bytes_of_unsharded_replicas(tmp_path: Path) -> None:
    copied = [ALONE, Replica(2, "copied"), Replica(4, "fsdp")]
    meshes = [Replica(4, "hsdp"), Replica(4, "tensor"), Replica(2, "columns")]
    cases = {"fp32": copied, "int8": meshes}
    alone = {codec: Results(tmp_path / f"{codec}-alone", [ALONE] * 3) for codec in cases}
    sharded = {codec: Results(tmp_path / f"{codec}-sharded", replicas) for codec, replicas in cases.items()}
    with ExitStack() as closing:
        # All at the same time: PyTorch is imported once.
        processes = [
            variables
            for codec in cases
            for run in (alone[codec], sharded[codec])
            for variables in run.variables({"codec": codec}, closing)
        ]
        (tmp_path / "processes").write_text("".join(json.dumps(variables) + "\n" for variables in processes))
        forking = subprocess.run(
            [sys.executable, "-m", "tests.support.jobs.forked_processes", str(tmp_path / "processes")],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=False,
            text=True,
            timeout=240,
        )
    assert forking.returncode == 0, forking.stdout + forking.stderr
    for codec in cases:
        assert len(alone[codec].checksums() | sharded[codec].checksums()) == 1
    with np.load(tmp_path / "int8-sharded" / "2" / "checkpoints" / f"parameters-{ROUNDS:08d}.npz") as arrays:
        assert arrays["0.weight"].shape == (900, 37)
        assert arrays["scale"].shape == ()
