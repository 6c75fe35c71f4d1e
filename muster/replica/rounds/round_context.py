"""What every step of a round needs: the store, the run's rules, a clock, buffers, and threads for parallel requests."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from math import inf
from threading import Event
from typing import Any, Protocol, TypeVar

from muster.contract.run.commit import HOME, Commit
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.codecs import FP32
from muster.replica.codecs.base import Codec
from muster.replica.group.board import Board, InnerGroup, LocalBoard
from muster.replica.parts.link import Alone, Link
from muster.replica.replica_errors import RendezvousError, StoppedError
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.suspicions import NO_SUSPICIONS, Suspicions
from muster.replica.store.read_ahead import ByteRange, ReadAhead
from muster.replica.store.transport import Store
from muster.replica.wire.blocks import CONNECTIONS, Buffers

POLL_FIRST_SECONDS = 0.01
POLL_MAX_SECONDS = 1.0
POLL_SHARE = 0.25  # a poll notices a change late by at most a quarter of the wait, an eighth on average

# A snapshot is as large as two rounds' means: at every tenth round it costs a fifth of a round's upload.
SNAPSHOT_ROUNDS = 10

T = TypeVar("T")
R = TypeVar("R")

log = logging.getLogger("muster.replica")


class Clock(Protocol):
    """A monotonic clock. No decision depends on the time of day, which may be wrong by hours."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""

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


@dataclass(frozen=True)
class Stops:
    """The reasons to end: `asked` by SIGTERM; the `trainer` should return, for that reason or because the run ended.

    While `at_steps` is set, a front end tells the trainer of either, in all processes after the same inner step.
    """

    asked: Event = field(default_factory=Event)
    trainer: Event = field(default_factory=Event)
    at_steps: Event = field(default_factory=Event)

    def terminate(self) -> None:
        """SIGTERM was received."""
        self.asked.set()
        self.ask_trainer()

    def ask_trainer(self) -> None:
        """The trainer should return: now, or when a front end says so."""
        if not self.at_steps.is_set():
            self.trainer.set()


class Places(Protocol):
    """How the rounds of a run over several places become means; an option has it (the seam `replica.places`)."""

    @property
    def place(self) -> str:
        """That of this process."""

    @property
    def near(self) -> Store:
        """Where the values of the place's contributions lie: objects of the same keys as in the run's bucket."""

    @property
    def far(self) -> Codec | None:
        """The codec of what crosses from one place to another; None: that of the run."""

    def coded(self, far: str) -> Places:
        """With the codec `far` of what crosses from one place to another; empty: that of the run."""

    def crossed(self, commit: Commit, codec: Codec) -> float:
        """The bytes that a round sends from place to place; `codec`: that of the run."""

    @property
    def reduction(self) -> Callable[..., Any]:
        """What `Reduction` is at one place: it takes the same, and is one."""


@dataclass(frozen=True)
class OfferedPlaces:
    """What an option offers at the seam `replica.places`: how the rounds of a process at a place become means.

    `open` takes the place, and the store where the values of its contributions lie: at home that of the run.
    """

    open: Callable[[str, Store], Places]


@dataclass(frozen=True)
class RoundContext:
    """What a round needs: the store, the run's rules, and this process's means.

    Attributes:
        run: the first run of the lineage, under whose name everything is stored.
        stops: say when this process should end.
        rounds_before: the rounds that earlier runs of the lineage have committed, as far as is known.
        trained_by: the run of the lineage that calls this process's trainer.
        on_early_finish: what follows when a trainer returns early; None where processes do not report that they have
            finished.
        group: this process's place among the processes of its replica.
        board: small values that these processes share.
        link: connects them for the values of rounds, once a front end has connected it.
        outlier_factor: a contribution whose norm is more than so many times the median is excluded; 0: none is.
        fragments: into how many fragments the model is cut.
        suspicions: reports a rank on a cluster that a round misses.
        ahead: has what was read of the store while the trainer was imported; None: nothing was.
        places: how rounds are reduced that several places have a part in; None: the run has one place.
    """

    store: Store
    run: str
    quorum: Quorum
    timeout_seconds: float
    stops: Stops
    pool: Executor = field(default_factory=lambda: ThreadPoolExecutor(CONNECTIONS, "rendezvous"))
    clock: Clock = field(default_factory=SystemClock)
    codec: Codec = FP32
    snapshot_rounds: int = SNAPSHOT_ROUNDS
    buffers: Buffers = field(default_factory=Buffers)
    rounds_before: int = 0
    trained_by: str = ""
    on_early_finish: OnEarlyFinish | None = None
    group: InnerGroup = field(default_factory=InnerGroup)
    board: Board = field(default_factory=LocalBoard)
    link: Link = field(default_factory=Alone)
    outlier_factor: float = 0.0
    fragments: int = 1
    suspicions: Suspicions = NO_SUSPICIONS
    ahead: ReadAhead | None = None
    places: Places | None = None

    @property
    def place(self) -> str:
        """Where this process trains."""
        return HOME if self.places is None else self.places.place

    @property
    def values(self) -> Store:
        """Where the values of this place's contributions lie, but for those in the contributions' own objects."""
        return self.store if self.places is None else self.places.near

    def stream(self, wanted: ByteRange, sizes: tuple[int, int]) -> Iterator[memoryview]:
        """As `Store.stream`; what was read ahead is not read again."""
        return (self.ahead or self.store).stream(wanted.key, wanted.start, wanted.stop, sizes=sizes)

    def side_by_side(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Apply `function` to every item, requests in parallel; results in the items' order.

        If one fails, its error is raised after all others have ended: they write into buffers that the next revision
        or round reuses.
        """
        listed = list(items)
        if len(listed) < 2:
            return [function(item) for item in listed]
        futures = [self.pool.submit(function, item) for item in listed]
        try:
            return [future.result() for future in futures]
        finally:
            wait([future for future in futures if not future.cancel()])

    def both(self, one: Callable[[], T], other: Callable[[], R]) -> tuple[T, R]:
        """What two calls return that are made at the same time; if both fail, the first one's error."""
        future = self.pool.submit(other)
        try:
            found = one()
        finally:
            wait([future])
        return found, future.result()

    def polling(self) -> Polling:
        """Polling for one round; its time-out starts now."""
        return Polling(self.clock, self.stops.asked, self.timeout_seconds)


class Polling:
    """Pauses between two looks at the store, as long as a share of the wait so far, until the round's time-out."""

    def __init__(self, clock: Clock, stop: Event, timeout_seconds: float) -> None:
        self._clock = clock
        self._stop = stop
        self._timeout_seconds = timeout_seconds
        self._started = clock.monotonic()
        self._waits_since = self._started
        self._expected = 0.0

    @property
    def left_seconds(self) -> float:
        """Seconds until the time-out; 0 or less after it."""
        return self._timeout_seconds - (self._clock.monotonic() - self._started)

    def reset(self, expected: float = 0.0) -> None:
        """Start again with short pauses: a change is expected soon, or not much before `expected` seconds."""
        self._waits_since, self._expected = self._clock.monotonic(), expected

    def pause(self, missing: Callable[[], str], until: float = inf) -> None:
        """Wait until the next look, at most until the clock says `until`.

        Raises:
            StoppedError: the replica was asked to stop.
            RendezvousError: the time-out has passed; `missing` describes what did not arrive.
        """
        if self.left_seconds <= 0:
            message = f"Timed out after {self._timeout_seconds:g} s (rendezvous.timeout_seconds): {missing()}"
            raise RendezvousError(message)
        self.rest(until)

    def rest(self, until: float = inf) -> None:
        """Wait until the next look, at most until the time-out and until the clock says `until`.

        Raises:
            StoppedError: the replica was asked to stop.
        """
        # The first pause is a share of the expected wait: then it is late by no larger share than all others.
        waited = max(self._clock.monotonic() - self._waits_since, self._expected)
        self._expected = 0.0
        pause = min(POLL_MAX_SECONDS, max(POLL_FIRST_SECONDS, POLL_SHARE * waited))
        most = min(self.left_seconds, until - self._clock.monotonic())
        if self._clock.wait(self._stop, max(0.0, min(pause, most))):
            raise StoppedError
