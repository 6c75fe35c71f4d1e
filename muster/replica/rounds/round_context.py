"""What every step of a round needs: the store, the run's rules, threads for side-by-side requests, and patience."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event
from typing import TypeVar

from muster.replica.clock import Clock, SystemClock
from muster.replica.codecs import FP32
from muster.replica.codecs.base import Codec
from muster.replica.errors import RendezvousError, StoppedError
from muster.replica.rounds.quorum import Quorum
from muster.replica.store.transport import Store
from muster.replica.wire.buffers import Buffers

CONNECTIONS = 16
POLL_FIRST_SECONDS = 0.01
POLL_MAX_SECONDS = 1.0
POLL_GROWTH = 1.25  # what is waited in vain is at most a quarter of the wait, an eighth on average

# A snapshot is as large as two rounds' means: at every tenth round it costs a fifth of a round's upload.
SNAPSHOT_ROUNDS = 10

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger("muster.replica")


@dataclass(frozen=True)
class Meeting:
    """One run's rendezvous as one process sees it."""

    store: Store
    run: str
    quorum: Quorum
    timeout_seconds: float
    stop: Event
    pool: Executor = field(default_factory=lambda: ThreadPoolExecutor(CONNECTIONS, "rendezvous"))
    clock: Clock = field(default_factory=SystemClock)
    codec: Codec = FP32
    snapshot_rounds: int = SNAPSHOT_ROUNDS
    buffers: Buffers = field(default_factory=Buffers)

    def side_by_side(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """`function` of every item, requests overlapping, results in the items' order.

        Where one fails its error is raised once none of the others goes on: they write into buffers that the next
        revision or round takes.
        """
        listed = list(items)
        if len(listed) < 2:
            return [function(item) for item in listed]
        futures = [self.pool.submit(function, item) for item in listed]
        try:
            return [future.result() for future in futures]
        finally:
            wait([future for future in futures if not future.cancel()])

    def patience(self) -> Patience:
        """Patience for one round, from now on."""
        return Patience(self.clock, self.stop, self.timeout_seconds)


class Patience:
    """Pauses between looks, growing from look to look, until the round's time is over."""

    def __init__(self, clock: Clock, stop: Event, timeout_seconds: float) -> None:
        self._clock = clock
        self._stop = stop
        self._timeout_seconds = timeout_seconds
        self._started = clock.monotonic()
        self._pause_seconds = POLL_FIRST_SECONDS

    @property
    def left_seconds(self) -> float:
        """How long this may still go on; 0 or less when it is over."""
        return self._timeout_seconds - (self._clock.monotonic() - self._started)

    def reset(self) -> None:
        """Look often again: something is about to come."""
        self._pause_seconds = POLL_FIRST_SECONDS

    def pause(self, missing: Callable[[], str]) -> None:
        """Wait until the next look.

        Raises:
            StoppedError: the replica is to stop.
            RendezvousError: the time is over; `missing` says what did not come.
        """
        left = self.left_seconds
        if left <= 0:
            message = f"Gave up after {self._timeout_seconds:g} s (rendezvous.timeout_seconds): {missing()}"
            raise RendezvousError(message)
        if self._clock.wait(self._stop, min(self._pause_seconds, left)):
            raise StoppedError
        self._pause_seconds = min(POLL_MAX_SECONDS, self._pause_seconds * POLL_GROWTH)
