"""How many requests of a process wait for S3 at the same time: half as many once it answers 503, and slowly more again.

S3 answers 503 (SlowDown) to what is above the rate of a partition of its keys. Then a request that comes again later
is served, so it is tried until the round's time-out, and who tries gives way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from threading import Condition, Event

# As many served requests as the limit allows at once raise it by so much: 16 are back after some 250.
GROWTH = 1 / 2
# Replicas that have waited longest must not wait much longer than the others: the round waits for the last one.
PAUSE_SECONDS = 1.0


class Pace:
    """One process's requests to one bucket. Instances may be used from several threads."""

    def __init__(self, patience_seconds: float = 0.0, stop: Event | None = None) -> None:
        """
        Args:
            patience_seconds: how long a request that is answered 503 is tried again, beyond the tries of others.
            stop: set when the process is asked to end: then it is not patient any more.
        """
        self._patience_seconds, self._stop = patience_seconds, stop or Event()
        self._free = Condition()
        self._limit, self._running, self._lowered = inf, 0, 0

    def waits(self, seconds: float) -> bool:
        """Whether a request that is answered 503 for so many seconds is tried again."""
        return seconds < self._patience_seconds and not self._stop.is_set()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """One request and its tries: it begins when the limit allows it."""
        with self._free:
            while self._running and self._running + 1 > self._limit:
                self._free.wait()
            self._running += 1
        try:
            yield
        finally:
            with self._free:
                self._running -= 1
                self._free.notify()

    def begin(self) -> int:
        """A try begins; what `refused` needs to know of it."""
        return self._lowered

    def refused(self, begun: int) -> None:
        """S3 answers 503. Those that ran beside a try that has halved the limit do not halve it again."""
        with self._free:
            if begun == self._lowered:
                self._limit = max(1.0, min(self._limit, self._running) / 2)
                self._lowered += 1

    def served(self) -> None:
        """S3 serves a request."""
        with self._free:
            self._limit += GROWTH / self._limit
            self._free.notify()
