"""A replica of real processes whose number changes in the middle of a phase: FSDP2, Adam, error feedback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from muster.contract.run.exits import ReplicaExit
from muster.contract.run.run_document import RunDocument
from muster.replica.group.board import LocalBoard
from muster.replica.group.launcher import free_port
from muster.replica.group.network_board import BoardServer

torch = pytest.importorskip("torch", reason="make test installs it")

ROOT = Path(__file__).resolve().parents[3]
STOPS = {"1": 6, "2": 10}
ROUNDS = 4


class Runs:
    """Runs of one replica, whose attempts share a folder, as the pods of a job do."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._processes: list[dict[str, object]] = []
        self._closing = ExitStack()

    def add(self, name: str, sizes: tuple[int, ...]) -> None:
        """A run whose attempts have these numbers of processes; all but the last are stopped."""
        place = self.root / name
        (place / "ml").mkdir(parents=True)
        document = RunDocument(
            run="test",
            plan_digest="0",
            replicas=1,
            trainer="tests.support.jobs.resized_trainer:train",
            kwargs={
                "rounds": ROUNDS,
                "stops": {} if len(sizes) == 1 else {**dict(list(STOPS.items())[: len(sizes) - 1])},
            },
            rendezvous_uri=f"{(place / 'rendezvous').as_uri()}/",
            min_participants=1,
            grace_seconds=60.0,
            timeout_seconds=120.0,
            snapshot_rounds=2,
        )
        (place / "document.json").write_bytes(document.to_json())
        before: list[int] = []
        for attempt, size in enumerate(sizes, start=1):
            before = self._attempt(place, attempt, size, ReplicaExit.STOPPED if attempt < len(sizes) else 0, before)

    def _attempt(self, place: Path, attempt: int, size: int, code: int, after: list[int]) -> list[int]:
        variables = {
            "MUSTER_DOCUMENT": (place / "document.json").as_uri(),
            "MUSTER_RUN": "test",
            "MUSTER_RANK": "0",
            "MUSTER_ATTEMPT": str(attempt),
            "SAGEMAKER_BASE_DIR": str(place / "ml"),
        }
        folder = place / f"group-{attempt}"
        folder.mkdir()
        if size > 1:
            server = BoardServer(LocalBoard(), ("127.0.0.1", 0))
            self._closing.callback(server.close)
            variables |= {
                "MUSTER_GROUP_BOARD": f"127.0.0.1:{server.port}",
                "MUSTER_GROUP_FOLDER": str(folder),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(free_port()),
            }
        numbers = []
        for rank in map(str, range(size)):
            numbers.append(len(self._processes))
            own = {**variables, "RANK": rank, "LOCAL_RANK": rank}
            self._processes.append({"variables": own, "dies_at": None, "code": code, "after": after})
        return numbers

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


def test_parameters_and_optimizer_continue_whatever_the_number_of_processes(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.add("unbroken", (1,))
    changes = {"grows": (1, 2), "shrinks": (2, 1), "changes": (2, 3, 2)}
    for name, sizes in changes.items():
        runs.add(name, sizes)
    runs.train()

    def left(name: str) -> dict[str, object]:
        found: dict[str, object] = torch.load(tmp_path / name / "ml" / "output" / "data" / "left.pt")
        return found

    def model(name: str) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
        return load_file(tmp_path / name / "rendezvous" / "output" / "model" / "model.safetensors")

    wanted, parameters = left("unbroken"), model("unbroken")
    for name in changes:
        found = left(name)
        assert (found["rate"], found["step"]) == (wanted["rate"], wanted["step"])
        for moment, other in zip(found["moments"], wanted["moments"], strict=True):  # type: ignore[call-overload]
            torch.testing.assert_close(moment, other, rtol=1e-3, atol=1e-6)
        for tensor, values in model(name).items():
            np.testing.assert_allclose(values, parameters[tensor], rtol=1e-3, atol=1e-5)
