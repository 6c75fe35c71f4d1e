"""Phases of a script: each is timed, and told on one line when it is over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


class Stopwatch:
    """Times phases, one after the other. Seconds are wall-clock time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self.seconds: dict[str, float] = {}

    @property
    def total(self) -> float:
        """Since the stopwatch was made."""
        return time.monotonic() - self._started

    @contextmanager
    def phase(self, name: str) -> Iterator[list[str]]:
        """Time a phase. What is appended to the list that this gives is told beside the seconds."""
        remarks: list[str] = []
        started = time.monotonic()
        yield remarks
        self.seconds[name] = time.monotonic() - started
        line = Text.assemble(("✓ ", "green"), f"{name:<28}{self.seconds[name]:5.1f} s  ", ("; ".join(remarks), "dim"))
        self._console.print(line, soft_wrap=True)
