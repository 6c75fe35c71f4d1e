"""The share of time in which a training loop computes rather than waits for the exchange.

    utilisation = compute / wall = 1 - blocked / wall

from the end of one round to the end of the next. Blocked is all time that delays the next inner step: reading and
writing the parameters, packing the trainer's state, and waiting for the exchange, slower replicas included.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from muster.replica.statistics.metrics import UTILISATION
from muster.replica.statistics.statistics import Statistics


class Stopwatch:
    """Wall-clock seconds since the last `lap`, and how many of them were blocked."""

    def __init__(self, statistics: Statistics) -> None:
        """Logs the utilisation of each lap; progress and time account learn when the loop is blocked."""
        self._statistics = statistics
        self._began = time.monotonic()
        self._blocked = 0.0
        self._is_blocked = False
        self.blocked_seconds = 0.0
        self.utilisation = 1.0

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """The time within counts as blocked, once where one such block is within another."""
        began, outermost = time.monotonic(), not self._is_blocked
        self._is_blocked = True
        try:
            with self._statistics.progress.waiting(), self._statistics.times.blocked():
                yield
        finally:
            self._is_blocked = not outermost
            if outermost:
                self._blocked += time.monotonic() - began

    def lap(self) -> None:
        """End a round: set `blocked_seconds` and `utilisation`, and log the latter."""
        now = time.monotonic()
        self.blocked_seconds = self._blocked
        self.utilisation = 1 - self._blocked / max(now - self._began, 1e-9)
        self._began, self._blocked = now, 0.0
        self._statistics.metrics.log(**{UTILISATION: self.utilisation})
