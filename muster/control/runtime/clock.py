"""The only clock of the control plane: the time, durations and pauses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from muster.contract import timestamps
from muster.contract.timestamps import Timestamp


class Clock(Protocol):
    """A source of time. Tests and simulations use a virtual one instead of the machine's."""

    def utc_now(self) -> datetime:
        """The time, with UTC as its zone."""

    def monotonic(self) -> float:
        """Seconds on a clock that is never set back."""

    def sleep(self, seconds: float) -> None:
        """Pause."""


class SystemClock:
    """The machine's own clock."""

    def utc_now(self) -> datetime:
        """The time, with UTC as its zone."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds on a clock that is never set back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Pause."""
        time.sleep(seconds)


_clock: Clock = SystemClock()


@contextmanager
def replaced(clock: Clock) -> Iterator[None]:
    """Use `clock` in every thread of this process."""
    global _clock  # noqa: PLW0603 - there is one clock, and its users are everywhere
    before, _clock = _clock, clock
    try:
        yield
    finally:
        _clock = before


def utc_now() -> datetime:
    """The time, with UTC as its zone."""
    return _clock.utc_now()


def monotonic() -> float:
    """Seconds on a clock that is never set back."""
    return _clock.monotonic()


def sleep(seconds: float) -> None:
    """Pause."""
    _clock.sleep(seconds)


def now() -> Timestamp:
    """The time as documents hold it."""
    return timestamps.text(utc_now())


def seconds_since(timestamp: str) -> float:
    """Seconds from `timestamp`, as `now` wrote it, until now."""
    return (utc_now() - timestamps.parse(timestamp)).total_seconds()


@dataclass(frozen=True)
class TimeBudget:
    """Time that ends at `until`, in seconds on the control plane's monotonic clock."""

    until: float

    @classmethod
    def of(cls, seconds: float) -> TimeBudget:
        """A budget of so many seconds from now."""
        return cls(monotonic() + seconds)

    @property
    def is_spent(self) -> bool:
        """Whether no time is left."""
        return monotonic() >= self.until

    @property
    def remaining(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self.until - monotonic())
