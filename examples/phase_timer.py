"""Times the phases of a script and prints a line after each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text


class PhaseTimer:
    """Times phases, one after the other, in wall-clock seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self.seconds: dict[str, float] = {}

    @property
    def total(self) -> float:
        """Seconds since the stopwatch was created."""
        return time.monotonic() - self._started

    @contextmanager
    def phase(self, name: str) -> Iterator[list[str]]:
        """Time a phase. Text appended to the list that this yields is printed beside the seconds."""
        remarks: list[str] = []
        started = time.monotonic()
        yield remarks
        self.seconds[name] = time.monotonic() - started
        line = Text.assemble(("✓ ", "green"), f"{name:<28}{self.seconds[name]:5.1f} s  ", ("; ".join(remarks), "dim"))
        self._console.print(line, soft_wrap=True)
