"""Replicas as processes over a directory, forked from one that has imported what takes most of their time."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from muster.contract.run.run_document import Manifest, RunDocument
from muster.replica.group.board import LocalBoard
from muster.replica.group.network_board import BoardServer
from tests.support.command_server import Command, CommandServer
from tests.support.jobs.forked_replica import ENV_DIES_AT
from tests.support.source_patch import ROOT
from tests.support.waiting import wait_until

_WITHOUT_TORCH = ROOT / "tests" / "support" / "jobs" / "without_torch"


@contextmanager
def replica_server(place: Path, *modules: str, has_torch: bool = False) -> Iterator[CommandServer]:
    """A server that has imported `modules`; without `has_torch`, PyTorch is not installed for its processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", _python_path(has_torch))
        patch.setenv("OMP_NUM_THREADS", "1")
        server = CommandServer(Path(sys.executable), ("tests.support.jobs.forked_replica", *modules), place)
    with server:
        yield server


def _python_path(has_torch: bool) -> str:
    return os.pathsep.join(map(str, [ROOT] if has_torch else [_WITHOUT_TORCH, ROOT]))


@dataclass
class ForkedRun:
    """A run in a directory. Each process of a replica has a tree of its own, or shares that of its group."""

    server: CommandServer
    root: Path
    has_torch: bool = False
    _running: list[Command] = field(default_factory=list)
    _closing: ExitStack = field(default_factory=ExitStack)

    @property
    def meeting_place(self) -> Path:
        return self.root / "rendezvous"

    def write_document(self, trainer: str | None, **changes: Any) -> None:
        """Say what the replicas run; `changes`: fields of the run document."""
        self.root.mkdir(exist_ok=True)
        fields: dict[str, Any] = {
            "run": "test",
            "plan_digest": "0",
            "replicas": 1,
            "trainer": trainer,
            "kwargs": {},
            "rendezvous_uri": f"{self.meeting_place.as_uri()}/",
            "min_participants": changes.get("replicas", 1),
            "grace_seconds": 60.0,
            "timeout_seconds": 120.0,
            **changes,
        }
        (self.root / "document.json").write_bytes(RunDocument(**fields).to_json())

    def base(self, rank: int = 0, attempt: int = 1) -> Path:
        return self.root / f"r{rank}a{attempt}"

    def start(self, rank: int = 0, attempt: int = 1, program: str = "replica", **variables: str) -> Command:
        """Start a process; an empty variable is not set."""
        self.base(rank, attempt).mkdir(exist_ok=True)
        environment = {
            "MUSTER_DOCUMENT": (self.root / "document.json").as_uri(),
            "MUSTER_RUN": "test",
            "MUSTER_RANK": str(rank),
            "MUSTER_ATTEMPT": str(attempt),
            "SAGEMAKER_BASE_DIR": str(self.base(rank, attempt)),
            **variables,
        }
        return self.run([program], environment)

    def run(self, arguments: Sequence[str], variables: Mapping[str, str]) -> Command:
        """Start a process with these variables, and those that all need."""
        common = {"PATH": os.environ["PATH"], "PYTHONPATH": _python_path(self.has_torch), "OMP_NUM_THREADS": "1"}
        environment = {name: value for name, value in {**common, **variables}.items() if value}
        process = self.server.start(arguments, ROOT, environment)
        self._running.append(process)
        return process

    def start_group(
        self, size: int, rank: int = 0, attempt: int = 1, *, dies_at: str = "", **variables: str
    ) -> list[Command]:
        """Start `size` processes of a replica without a launcher; PyTorch connects them.

        A signal kills the last one when it writes an object like `dies_at`.
        """
        if size == 1:
            return [self.start(rank, attempt, "member", **variables)]
        from torch.distributed import TCPStore  # noqa: PLC0415 - only tests/torch has groups

        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._closing.callback(id, store)  # it lives as long as the run
        board = BoardServer(LocalBoard(), ("127.0.0.1", 0))
        self._closing.callback(board.close)
        variables |= {
            "MUSTER_GROUP_BOARD": f"127.0.0.1:{board.port}",
            "MUSTER_GROUP_FOLDER": str(self.base(rank, attempt)),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }
        places = [{"RANK": str(index), "LOCAL_RANK": str(index)} for index in range(size)]
        places[-1][ENV_DIES_AT] = dies_at
        return [self.start(rank, attempt, "member", **variables, **place) for place in places]

    def ended(self, process: Command) -> tuple[int, str, str]:
        """The exit code of a process, once it has ended, and what it has written: to standard output and error."""
        done = process.finish()
        self._running.remove(process)
        return done.returncode, done.stdout, done.stderr

    def stopped(self, process: Command) -> tuple[int, str, str]:
        """The same once SIGTERM has ended it."""
        process.send_signal(signal.SIGTERM)
        return self.ended(process)

    def kill(self, process: Command) -> None:
        process.send_signal(signal.SIGKILL)
        self.ended(process)

    def end(self) -> None:
        """No process outlives the test."""
        for process in list(self._running):
            self.kill(process)
        self._closing.close()

    def weights(self, name: str = "weights") -> NDArray[np.float32]:
        """Those of the run's model."""
        return load_file(self.meeting_place / "output" / "model" / "model.safetensors")[name]

    def failure(self, rank: int = 0, attempt: int = 1) -> str:
        return (self.base(rank, attempt) / "output" / "failure").read_text()

    def manifest(self, rank: int = 0, attempt: int = 1) -> Manifest:
        path = self.base(rank, attempt) / "output" / "data" / "manifest.json"
        return Manifest.from_json(path.read_bytes(), str(path))


def wait_for_line(process: Command, word: str) -> None:
    """Wait until the process has written `word` to standard error."""
    wait_until(f"the word {word}", lambda: process.error.exists() and word in process.error.read_text())
