"""The folder through which the launcher and the processes of one instance know each other.

Its files, for the process with the local rank k: `k.out` (a FIFO: what the process writes), `k.pid` (its number, once
it handles SIGTERM), and at its end `k.failure` (why it failed) or `k.done` (it has nothing left to do).
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from muster.contract.exits import ReplicaExit


@dataclass(frozen=True)
class Report:
    """Why a process failed, in its own words."""

    at: float
    """Seconds since 1970."""
    code: ReplicaExit
    text: str


@dataclass(frozen=True)
class GroupFolder:
    """The folder at `place`."""

    place: Path

    def make_outputs(self, count: int) -> list[Path]:
        """Create the FIFOs of `count` processes."""
        paths = [self._of(local_rank, "out") for local_rank in range(count)]
        for path in paths:
            os.mkfifo(path, 0o600)
        return paths

    def redirect_output(self, local_rank: int) -> None:
        """Make the FIFO this process's standard output and error, for its own children, too."""
        fifo = os.open(self._of(local_rank, "out"), os.O_WRONLY)
        os.dup2(fifo, 1)
        os.dup2(fifo, 2)
        os.close(fifo)

    def register(self, local_rank: int) -> None:
        """Say that this process has the local rank and handles SIGTERM."""
        self._write(local_rank, "pid", str(os.getpid()))

    def pid(self, local_rank: int) -> int | None:
        """The process's number; None until it is registered."""
        text = self._read(local_rank, "pid")
        return None if text is None else int(text)

    def is_gone(self, local_rank: int) -> bool:
        """Whether the process was registered and exists no more."""
        pid = self.pid(local_rank)
        if pid is None:
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    def report(self, local_rank: int, code: ReplicaExit, text: str) -> None:
        """Write why this process failed."""
        self._write(local_rank, "failure", json.dumps([time.time(), int(code), text]))

    def reported(self, local_rank: int) -> Report | None:
        """Why the process failed; None if it has not said that it did."""
        text = self._read(local_rank, "failure")
        if text is None:
            return None
        at, code, words = json.loads(text)
        return Report(at, ReplicaExit(code), words)

    def finish(self, local_rank: int) -> None:
        """Say that this process has done all that it has to do: an exit code of 0 alone does not say so."""
        self._write(local_rank, "done", "")

    def is_finished(self, local_rank: int) -> bool:
        """Whether the process has said that it is done."""
        return self._of(local_rank, "done").exists()

    def _of(self, local_rank: int, kind: str) -> Path:
        return self.place / f"{local_rank}.{kind}"

    def _write(self, local_rank: int, kind: str, text: str) -> None:
        # Renamed, so that the launcher never reads half of it.
        unfinished = self._of(local_rank, f"{kind}-unfinished")
        unfinished.write_text(text)
        unfinished.rename(self._of(local_rank, kind))

    def _read(self, local_rank: int, kind: str) -> str | None:
        try:
            return self._of(local_rank, kind).read_text()
        except FileNotFoundError:
            return None
