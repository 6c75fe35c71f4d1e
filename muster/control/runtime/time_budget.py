"""How much time a function has left."""

from __future__ import annotations

from dataclasses import dataclass

from muster.control.runtime import clock

CONNECT_SECONDS = 5
READ_SECONDS = 10
"""A service that takes requests and does not answer costs so much of each try. All tries of a call must fit into the
time of every function: then it is the function that says what hangs, and Lambda does not end it before."""


@dataclass(frozen=True)
class TimeBudget:
    """Time that ends at `until`, in seconds on the control plane's monotonic clock."""

    until: float

    @classmethod
    def of(cls, seconds: float) -> TimeBudget:
        """A budget of so many seconds from now."""
        return cls(clock.monotonic() + seconds)

    @property
    def is_spent(self) -> bool:
        """Whether no time is left."""
        return clock.monotonic() >= self.until

    @property
    def remaining(self) -> float:
        """Seconds that are left, at least 0."""
        return max(0.0, self.until - clock.monotonic())
