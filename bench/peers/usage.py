"""What a piece of work takes of a process: CPU of all its threads, and wall time."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Usage:
    """Seconds: `user` and `kernel` are CPU of all threads of the process, `wall` passed meanwhile."""

    user: float
    kernel: float
    wall: float

    @property
    def cpu(self) -> float:
        """User and kernel together."""
        return self.user + self.kernel


def used(work: Callable[[], object]) -> Usage:
    """What `work` takes."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    work()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return Usage(after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime, wall)


def answer_lines(answer: Callable[[int], dict[str, Usage | str]]) -> None:
    """Answer each line of standard input with one line of JSON; `answer` gets its number.

    What is printed meanwhile for others is no answer: it goes to standard error.
    """
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        for number, _ in enumerate(sys.stdin):
            found = {name: asdict(use) if isinstance(use, Usage) else use for name, use in answer(number).items()}
            print(json.dumps(found), file=answers, flush=True)
