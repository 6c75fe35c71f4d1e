"""Ways to average a vector over an object store: Muster's, two peers', and bare transfers, all on the same store.

A scheme's `exchange` is one round of one replica. The peers have what their authors describe and no more: no checksums,
no commit, fixed members; one object for the whole model, where the real all-gather makes one per parameter.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from muster.replica.codecs import codec_named
from muster.replica.rendezvous import Rendezvous
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.round_context import (
    POLL_FIRST_SECONDS,
    POLL_MAX_SECONDS,
    RoundContext,
    Stops,
)
from muster.replica.statistics.metrics import Metrics
from muster.replica.store.transport import ObjectMissingError, Store
from muster.replica.wire.blocks import CONNECTIONS

Floats = NDArray[np.float32]
T = TypeVar("T")

TIMEOUT_SECONDS = 120.0
_ITEM = np.dtype(np.float32).itemsize
_AHEAD = 2
_GROWTH = 1.25  # of the pause between two looks


@dataclass(frozen=True)
class Place:
    """One replica's place in a group."""

    store: Store
    rank: int
    replicas: int
    grace_seconds: float
    codec: str = "fp32"
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(CONNECTIONS))

    def all(self, function: Callable[[int], T], ranks: Iterable[int]) -> list[T]:
        """`function` of every rank, side by side."""
        return list(self.pool.map(function, ranks))

    def one_by_one(self, function: Callable[[int], T], ranks: Iterable[int]) -> Iterator[T]:
        """`function` of every rank, in order, two at a time: large values are not all in memory at once."""
        ahead: deque[Future[T]] = deque()
        for rank in ranks:
            ahead.append(self.pool.submit(function, rank))
            if len(ahead) == _AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()

    @property
    def others(self) -> list[int]:
        """Every other rank, the next one first, so that not all read the same object at once."""
        return [(self.rank + distance) % self.replicas for distance in range(1, self.replicas)]

    def shard(self, count: int, rank: int) -> slice:
        """The elements of a vector that belong to `rank`."""
        return slice(count * rank // self.replicas, count * (rank + 1) // self.replicas)


def joined(place: Place) -> Rendezvous:
    """A replica's rendezvous with the others of its group."""
    quorum = Quorum(place.replicas, max(1, place.replicas // 2), place.grace_seconds)
    context = RoundContext(
        place.store, "bench", quorum, TIMEOUT_SECONDS, Stops(), place.pool, codec=codec_named(place.codec)
    )
    return Rendezvous.open(context, place.rank, 1, Metrics())


class Scheme(ABC):
    """One way to average."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def prepare(self, gradient: Floats) -> None:  # noqa: B027 - most have nothing to prepare
        """Prepare what is not part of a round."""

    @abstractmethod
    def exchange(self, round_: int, gradient: Floats) -> Floats | None:
        """The mean over all replicas; None from a scheme that only moves bytes."""


class Muster(Scheme):
    """Contribute, commit, reduce, gather."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._rendezvous = joined(place)

    def exchange(self, round_: int, gradient: Floats) -> Floats:
        """One round, without the outer step."""
        return self._rendezvous.rounds.exchange(round_, LocalUpdate(gradient, 1.0)).mean


class AllGather(Scheme):
    """As the SageMakerExecutor's all-reduce does it: every replica reads the whole vector of every other one."""

    def exchange(self, round_: int, gradient: Floats) -> Floats:
        """One PUT, N-1 GETs of everything."""
        place = self._place
        place.store.create(f"all-gather/{round_}/{place.rank}", _raw(gradient))
        mean = gradient.copy()
        for part in place.one_by_one(lambda rank: _wait_for(place.store, f"all-gather/{round_}/{rank}"), place.others):
            mean += part
        mean /= np.float32(place.replicas)
        return mean


class ScatterReduce(Scheme):
    """As LambdaML does it: each replica PUTs every shard of its own vector, then the shard that it reduced."""

    def exchange(self, round_: int, gradient: Floats) -> Floats:
        """N PUTs, 2(N-1) GETs."""
        place = self._place
        key = f"scatter-reduce/{round_}"

        def put(rank: int) -> None:
            place.store.create(f"{key}/{place.rank}-{rank}", _raw(gradient[place.shard(gradient.size, rank)]))

        place.all(put, place.others)
        mean = np.empty_like(gradient)
        own = gradient[place.shard(gradient.size, place.rank)].copy()
        for part in place.all(lambda rank: _wait_for(place.store, f"{key}/{rank}-{place.rank}"), place.others):
            own += part
        own /= np.float32(place.replicas)
        place.store.create(f"{key}/mean-{place.rank}", _raw(own))
        mean[place.shard(gradient.size, place.rank)] = own

        def gather(rank: int) -> None:
            mean[place.shard(gradient.size, rank)] = _wait_for(place.store, f"{key}/mean-{rank}")

        place.all(gather, place.others)
        return mean


class Bare(Scheme):
    """The bytes of Muster's round and nothing else: no waiting (all objects exist), no arithmetic, no copy."""

    def prepare(self, gradient: Floats) -> None:
        """Store what others will read."""
        self._place.store.create(f"bare/whole/{self._place.rank}", _raw(gradient))
        self._place.store.create(
            f"bare/mean/{self._place.rank}", _raw(gradient[self._place.shard(gradient.size, self._place.rank)])
        )

    def exchange(self, round_: int, gradient: Floats) -> None:
        """One PUT of the vector, N-1 ranged GETs, one PUT of a shard, N-1 GETs of shards."""
        place = self._place
        shard = place.shard(gradient.size, place.rank)
        place.store.create(f"bare/moved/{round_}/{place.rank}", _raw(gradient))
        start, stop = shard.start * _ITEM, shard.stop * _ITEM
        place.all(lambda rank: place.store.read(f"bare/whole/{rank}", start, stop), place.others)
        place.store.create(f"bare/moved/{round_}/mean-{place.rank}", _raw(gradient[shard]))
        place.all(lambda rank: place.store.read(f"bare/mean/{rank}"), place.others)


SCHEMES: dict[str, type[Scheme]] = {
    "muster": Muster,
    "all-gather": AllGather,
    "scatter-reduce": ScatterReduce,
    "bare": Bare,
}


def _raw(values: Floats) -> memoryview:
    return values.view(np.uint8).data


def _wait_for(store: Store, key: str) -> Floats:
    """The object, as soon as it exists."""
    pause = POLL_FIRST_SECONDS
    while True:
        try:
            return np.frombuffer(store.read(key).body, np.float32)
        except ObjectMissingError:
            time.sleep(pause)
            pause = min(POLL_MAX_SECONDS, pause * _GROWTH)
