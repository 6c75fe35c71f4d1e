"""What a piece of work takes: CPU and wall time; and how much memory there is for it."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Seconds: `user` and `kernel` are CPU of all threads, `wall` passed meanwhile."""

    user: float
    kernel: float
    wall: float

    @property
    def cpu(self) -> float:
        """User and kernel together."""
        return self.user + self.kernel


def used(work: Callable[[], object], *, of: int = resource.RUSAGE_SELF) -> Usage:
    """What `work` takes of this process, or (`of=RUSAGE_CHILDREN`) of those that it starts and waits for."""
    before, began = resource.getrusage(of), time.perf_counter()
    work()
    wall, after = time.perf_counter() - began, resource.getrusage(of)
    return Usage(after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, wall)


def available_bytes() -> float:
    """The memory that programs can get without swapping; infinite where the system does not say so."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return inf
    return 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def answer_lines(answer: Callable[[int], dict[str, Usage | str]]) -> None:
    """Answer each line of standard input with one line of JSON; `answer` gets its number.

    What is printed meanwhile for others is no answer: it goes to standard error.
    """
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for number, _ in enumerate(sys.stdin):
            found = {name: asdict(use) if isinstance(use, Usage) else use for name, use in answer(number).items()}
            print(json.dumps(found), file=answers, flush=True)
