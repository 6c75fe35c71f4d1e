"""The one clock of a process: how time is told and how it is waited for."""

from __future__ import annotations

import time
from threading import Event
from typing import Protocol


class Clock(Protocol):
    """Time that only grows. No decision rests on the time of day, which may be wrong by hours."""

    def monotonic(self) -> float:
        """Seconds since some moment of this process."""

    def wait(self, stop: Event, seconds: float) -> bool:
        """Wait `seconds`, or less if `stop` is set meanwhile; whether it is set."""


class SystemClock:
    """The machine's clock."""

    def monotonic(self) -> float:
        """`time.monotonic`."""
        return time.monotonic()

    def wait(self, stop: Event, seconds: float) -> bool:
        """`Event.wait`."""
        return stop.wait(seconds)
