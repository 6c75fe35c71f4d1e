"""What the pod's first process and the agent's workers know of each other, in a folder beside the program's own.

The agent starts a worker again and again, with the first process alive: each start has a mark of its own, which stands
in the environment of every process that it starts.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from muster.options.hyperpod.replica.pod import ENV_POD_FOLDER

ENV_POD_START = "MUSTER_POD_START"
"""The mark of a start of the program."""
_PROCESSES = Path("/proc")
_END_SECONDS = 5.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class WorkerEnd:
    """How a start of the program has ended: exit code, the reason of a failure, and when (seconds since 1970)."""

    code: int
    reason: str
    at: float


@dataclass(frozen=True)
class PodFolder:
    """The folder at `place`."""

    place: Path

    @classmethod
    def of(cls, base: Path) -> PodFolder:
        """The folder of the pod whose /opt/ml is `base`; made where it is missing."""
        place = base / "muster-pod"
        place.mkdir(parents=True, exist_ok=True)
        return cls(place)

    def begin(self) -> str:
        """A worker begins; returns the mark of this start."""
        (self.place / "end.json").unlink(missing_ok=True)
        mark = uuid.uuid4().hex
        write_json(self.place / "start.json", {"mark": mark, "pid": os.getpid()})
        return mark

    def finish(self, code: int, reason: str) -> None:
        """The worker is about to end, with everything stored."""
        write_json(self.place / "end.json", {"code": code, "reason": reason, "at": time.time()})

    @property
    def has_begun(self) -> bool:
        """Whether a worker has begun at all."""
        return (self.place / "start.json").exists()

    @property
    def is_running(self) -> bool:
        """Whether the last worker that has begun still runs."""
        try:
            pid = json.loads((self.place / "start.json").read_text())["pid"]
            return not _is_zombie(_PROCESSES / str(pid))
        except (OSError, ValueError, KeyError):
            return False

    @property
    def end(self) -> WorkerEnd | None:
        """How the last worker has ended; None while it runs, or where it was killed."""
        try:
            return WorkerEnd(**json.loads((self.place / "end.json").read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def end_processes(self, but: str = "") -> int:
        """Kill what earlier starts of the program have left running, or all starts; returns how many processes.

        Only processes whose environment names this folder: on a machine of several pods they are this pod's.

        Args:
            but: the mark of the start whose processes stay.
        """
        over = time.monotonic() + _END_SECONDS
        killed: set[int] = set()
        while found := set(self._processes(but)):
            for pid in found - killed:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            killed |= found
            if time.monotonic() > over:
                break
            time.sleep(_LOOK_SECONDS)
        return len(killed)

    def _processes(self, but: str) -> Iterator[int]:
        here, kept = f"{ENV_POD_FOLDER}={self.place}".encode(), f"{ENV_POD_START}={but}".encode()
        start = f"{ENV_POD_START}=".encode()
        for entry in _PROCESSES.iterdir() if _PROCESSES.is_dir() else ():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
                is_zombie = _is_zombie(entry)
            except OSError:
                continue  # it has ended, or is another user's
            is_started = here in variables and any(item.startswith(start) for item in variables)
            if is_started and not is_zombie and not (but and kept in variables):
                yield int(entry.name)


def write_json(path: Path, content: object) -> None:
    """Write a document as a whole: no one reads a part of it."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(json.dumps(content))
    unfinished.replace(path)


def _is_zombie(process: Path) -> bool:
    return b") Z " in (process / "stat").read_bytes()
