"""A moment until which work may go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Deadline:
    """A moment on an injected monotonic clock, in seconds."""

    at: float
    monotonic: Callable[[], float] = time.monotonic

    @classmethod
    def after(cls, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> Deadline:
        """The moment `seconds` from now."""
        return cls(monotonic() + seconds, monotonic)

    @property
    def passed(self) -> bool:
        """Whether the moment has come."""
        return self.monotonic() >= self.at

    @property
    def remaining(self) -> float:
        """Seconds until then; 0 when it has passed."""
        return max(0.0, self.at - self.monotonic())
