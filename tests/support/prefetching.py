"""A replica in a thread whose recovery is read ahead, as its program does it while the trainer is imported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.group.board import InnerGroup
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.rounds.prefetch import Prefetch
from muster.replica.rounds.round_context import RoundContext
from muster.replica.statistics.metrics import Metrics
from muster.replica.store.read_ahead import ReadAhead
from muster.replica.store.transport import ObjectRange, Store
from muster.replica.wire import rendezvous_keys
from tests.support.peers import Faults, FaultyStore, Run, gradient_of

DATA = (rendezvous_keys.SNAPSHOTS, rendezvous_keys.REDUCED, rendezvous_keys.CONTRIBUTIONS)


def _same(_: str, body: bytes) -> bytes:
    return body


class WatchedStore(FaultyStore):
    """A store that counts the reads of data, in the order in which they begin; `rewrite` changes what they get."""

    def __init__(self, inner: Store, faults: Faults | None = None) -> None:
        super().__init__(inner, faults or Faults())
        self.read_keys: list[str] = []
        self.rewrite: Callable[[str, bytes], bytes] = _same
        self._guard = threading.Lock()

    def read(self, key: str, start: int = 0, stop: int | None = None) -> ObjectRange:
        with self._guard:
            if key.startswith(DATA):
                self.read_keys.append(key)
        part = super().read(key, start, stop)
        return replace(part, body=memoryview(self.rewrite(key, bytes(part.body))))

    def stream(self, key: str, start: int, stop: int, *, sizes: tuple[int, int] = (0, 0)) -> Iterator[memoryview]:
        yield self.read(key, start, stop).body


@dataclass
class Recovering:
    """A process of a rank that was lost: `prefetch` reads ahead, `join` recovers."""

    run: Run
    rank: int
    attempt: int = 2
    faults: Faults | None = None
    group: InnerGroup = field(default_factory=InnerGroup)
    store: WatchedStore = field(init=False)
    ahead: ReadAhead = field(init=False)
    prefetch: Prefetch = field(init=False)
    context: RoundContext = field(init=False)

    def __post_init__(self) -> None:
        self.store = WatchedStore(self.run.store, self.faults)
        self.ahead = ReadAhead(self.store)
        self.context = replace(self.run.context(self.store), group=self.group, ahead=self.ahead)
        self.prefetch = Prefetch(self.context, self.ahead)

    def join(self) -> Joined:
        """Recover, as the front end does."""
        parameters = np.zeros(self.run.count, np.float32)
        rendezvous = Rendezvous.open(
            self.context, self.rank, self.attempt, Metrics(), Outside(joined=self.prefetch.close)
        )
        outer = DiLoCo(rendezvous, parameters, Algorithm(codec=self.run.codec))
        return Joined(self, rendezvous, parameters, outer)


@dataclass
class Joined:
    """The same process, once it has loaded the run's state."""

    process: Recovering
    rendezvous: Rendezvous
    parameters: np.ndarray[tuple[int], np.dtype[np.float32]]
    outer: DiLoCo

    def train(self, rounds: int) -> None:
        """Train to the last round, and finish."""
        rank, count = self.process.rank, self.process.run.count
        while self.outer.round < rounds:
            self.parameters -= gradient_of(rank, self.outer.round + 1, count)
            self.outer.step(rank + 1)
        self.rendezvous.departure.finish("its trainer returned")
