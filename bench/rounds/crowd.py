"""A round of many replicas over one partition of S3, in virtual time: their own code, at S3's documented rate.

The store, its tries and its pace, the order of reading, and reduce and gather are the real ones. A shard has one value;
a request takes as long as the bytes that it stands for. Claims and the looks for the others' headers are left out.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from math import ceil
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from obstore.exceptions import AlreadyExistsError, GenericError

from muster.contract import timestamps
from muster.contract.run.commit import Commit, Member
from muster.replica.codecs.base import Codec
from muster.replica.rounds import reduction, round_context
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.contribution import Contribution, make_contribution
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.round_context import RoundContext, Stops
from muster.replica.rounds.round_mean import reduced_mean
from muster.replica.statistics.statistics import Notes
from muster.replica.store import missing_objects, pace, s3_store
from muster.replica.store.pace import Pace
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.store.transport import PART_BYTES, StoreUnavailableError
from muster.replica.wire import blocks
from muster.replica.wire.blocks import CONNECTIONS
from tests.simulation.kernel import Kernel

GETS_PER_SECOND, PUTS_PER_SECOND = 5500.0, 3500.0
"""S3: of a partition of a bucket's keys, and of all new keys together."""
_FIRST_BYTE_SECONDS, _CONNECTION_RATE = 0.030, 85e6
_REFUSED = "Server returned non-2xx status code: 503 Service Unavailable: <Error><Code>SlowDown</Code></Error>"
_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Crowd:
    """One round of so many replicas.

    Attributes:
        lost: replicas that ended with an error.
        seconds: until the last one had the mean.
        bound_seconds: for the requests that it needs, at the partition's rates.
        requests: that were served, by method; `refused`: that were not.
        means: that the replicas have got.
        first_reads: how many of them have begun their mean with each contribution.
    """

    lost: int = 0
    seconds: float = 0.0
    bound_seconds: float = 0.0
    refused: int = 0
    requests: Counter[str] = field(default_factory=Counter)
    means: set[bytes] = field(default_factory=set)
    first_reads: Counter[str] = field(default_factory=Counter)


def crowd(replicas: int, parameters: int, *, patience_seconds: float = 3600.0, gets: float = GETS_PER_SECOND) -> Crowd:
    """A round in which all replicas contribute at the same time.

    Args:
        gets: the partition's GETs a second; PUTs in proportion.
    """
    size = 4 * parameters
    shards = blocks.Blocks(parameters).shards_of_mean(replicas)
    parts = ceil(size / PART_BYTES)
    kernel, found = Kernel(), Crowd()
    puts = gets * PUTS_PER_SECOND / GETS_PER_SECOND
    found.bound_seconds = replicas * parts / puts + replicas * (replicas - 1) * (-(-shards // replicas)) * 2 / gets
    bucket = _Partition(kernel, found, gets, puts)
    random.seed(0)
    with _installed(kernel):
        members = [
            Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8)
            for rank in range(replicas)
        ]
        commit = Commit(
            run="run",
            round=1,
            committed_at=timestamps.text(_BEGAN),
            count=shards,
            members=tuple(members),
            epochs=(1,) * replicas,
            shards=shards,
        )
        contributed, all_contributed = Counter[str](), _Condition(kernel)

        def replica(rank: int) -> None:
            wire = _Wire(bucket, size / shards)
            clock = _Clock(kernel)
            stop = Event()
            store = S3ObjectStore("bucket", "", Pace(patience_seconds, stop))
            store.client = wire  # type: ignore[assignment]
            store._missing = missing_objects.MissingObjects(wire)  # type: ignore[arg-type]
            pool: Any = _Pool(kernel, CONNECTIONS)
            context = RoundContext(store, "run", Quorum(replicas, replicas, 0.0), 3600.0, Stops(stop), pool, clock)
            gradient = np.random.default_rng(rank).standard_normal(shards).astype(np.float32)
            mine = make_contribution(context, Claim(rank, 1, 1, 1), 1, LocalUpdate(gradient, 1.0), Notes())
            with _Pool(kernel, s3_store.PARTS_AT_ONCE) as pool:
                pool.map(lambda _: store._call(mine.key, lambda: wire.part(size / parts)), range(parts))
            bucket.objects[mine.key] = bytes(mine.body)
            contributed["replicas"] += 1
            if contributed["replicas"] == replicas:
                all_contributed.notify_all()
            else:
                all_contributed.wait()
            mine = Contribution(
                1,
                mine.key,
                mine.body,
                mine.header.model_copy(update={"member": members[rank]}),
                mine.which,
                mine.values,
            )
            _, mean = reduced_mean(context, commit, mine, context.polling())
            found.means.add(mean.tobytes())
            found.seconds = max(found.seconds, kernel.seconds)

        def live(rank: int) -> None:
            try:
                replica(rank)
            except StoreUnavailableError:
                found.lost += 1

        for rank in range(replicas):
            kernel.spawn(f"replica {rank}", partial(live, rank))
        kernel.run(until=86_400.0, most=1_000_000_000)
    return found


class _Partition:
    """The objects, and two token buckets that hold one second's requests."""

    def __init__(self, kernel: Kernel, found: Crowd, gets: float, puts: float) -> None:
        self.kernel, self.found = kernel, found
        self._rates = {"GET": gets, "PUT": puts}
        self._left, self._since = dict(self._rates), dict.fromkeys(self._rates, 0.0)
        self.objects: dict[str, bytes] = {}

    def request(self, method: str) -> None:
        """A latency, and a refusal where the rate does not allow it."""
        self.kernel.sleep(_FIRST_BYTE_SECONDS)
        now, rate = self.kernel.seconds, self._rates[method]
        left = min(rate, self._left[method] + rate * (now - self._since[method]))
        self._since[method], self._left[method] = now, left - (left >= 1)
        if left < 1:
            self.found.refused += 1
            raise GenericError(_REFUSED)
        self.found.requests[method] += 1


class _Wire:
    """The partition behind obstore's functions, as one replica reaches it; a shard stands for so many bytes."""

    def __init__(self, bucket: _Partition, shard_bytes: float) -> None:
        self._bucket, self._shard_bytes, self._has_read = bucket, shard_bytes, False

    def part(self, size: float) -> None:
        """PUT of a part."""
        self._bucket.request("PUT")
        self._bucket.kernel.sleep(size / _CONNECTION_RATE)

    def put(self, path: str, body: Any, **_: object) -> None:
        self.part(self._shard_bytes)
        if path in self._bucket.objects:
            raise AlreadyExistsError(path)
        self._bucket.objects[path] = bytes(body)

    def head(self, path: str) -> dict[str, Any]:
        self._bucket.request("GET")
        return {"size": len(self._found(path)), "last_modified": _BEGAN}

    def get(self, path: str, *, options: dict[str, Any]) -> SimpleNamespace:
        self._bucket.request("GET")
        start, stop = options["range"]
        body = self._found(path)
        self._bucket.found.first_reads[path] += not self._has_read
        self._has_read = True
        ready_at = self._bucket.kernel.seconds + self._shard_bytes / _CONNECTION_RATE

        def stream(_: int) -> Iterator[bytes]:
            self._bucket.kernel.sleep(max(0.0, ready_at - self._bucket.kernel.seconds))
            yield body[start:stop]

        return SimpleNamespace(
            stream=stream, bytes=lambda: b"".join(stream(0)), meta={"size": len(body), "last_modified": _BEGAN}
        )

    def list(self, prefix: str) -> Iterator[list[dict[str, object]]]:
        """One page: of a round of this many replicas."""
        self._bucket.request("GET")
        objects = self._bucket.objects
        yield [{"path": key, "size": len(objects[key])} for key in sorted(objects) if key.startswith(prefix)]

    def _found(self, path: str) -> bytes:
        if path not in self._bucket.objects:
            raise FileNotFoundError(path)
        return self._bucket.objects[path]


_OBSTORE = SimpleNamespace(put=_Wire.put, get=_Wire.get, head=_Wire.head, list=_Wire.list)


# --- threads, clocks and locks in virtual time ------------------------------------------------------


@contextmanager
def _installed(kernel: Kernel) -> Iterator[None]:
    time = SimpleNamespace(sleep=kernel.sleep, monotonic=lambda: kernel.seconds)
    replaced: list[tuple[Any, str, Any]] = [
        (blocks, "BLOCK_ELEMENTS_MIN", 1),
        (blocks, "SHARD_BYTES_MIN", 1),
        (Codec, "grain", 1),
        (s3_store, "obstore", _OBSTORE),
        (s3_store, "_client", lambda *_, **_kw: None),
        (s3_store, "time", time),
        (missing_objects, "time", time),
        (pace, "Condition", partial(_Condition, kernel)),
        (round_context, "wait", lambda promises: [promise.settle() for promise in promises]),
        (reduction, "ThreadPoolExecutor", lambda workers, _: _Pool(kernel, workers)),
    ]
    with ExitStack() as stack:
        for owner, name, value in replaced:
            stack.enter_context(patch.object(owner, name, value))
        yield


class _Clock:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def monotonic(self) -> float:
        return self._kernel.seconds

    def wait(self, stop: Any, seconds: float) -> bool:
        self._kernel.sleep(seconds)
        return bool(stop.is_set())


class _Condition:
    """`threading.Condition`: only one activity runs at a time, until it waits."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._waiting: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> None:
        self._waiting.append(self._kernel.park())
        self._kernel.wait()

    def notify(self) -> None:
        if self._waiting:
            self._waiting.popleft()()

    def notify_all(self) -> None:
        while self._waiting:
            self.notify()


class _Promise:
    """`concurrent.futures.Future`."""

    def __init__(self, kernel: Kernel, work: Callable[[], Any]) -> None:
        self._work, self._settled = work, _Condition(kernel)
        self._value: Any = None
        self._error: BaseException | None = None
        self._is_settled = self._has_begun = False

    def execute(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        try:
            self._value = self._work()
        except Exception as error:
            self._error = error
        self._is_settled = True
        self._settled.notify_all()

    def settle(self) -> None:
        if not self._is_settled:
            self._settled.wait()

    def result(self) -> Any:
        self.settle()
        if self._error is not None:
            raise self._error
        return self._value

    def cancel(self) -> bool:
        if self._has_begun:
            return False
        self._has_begun = self._is_settled = True
        return True


class _Pool:
    """`ThreadPoolExecutor`."""

    def __init__(self, kernel: Kernel, workers: int) -> None:
        self._kernel, self._free = kernel, workers
        self._queue: deque[_Promise] = deque()

    def submit(self, work: Callable[..., Any], /, *args: Any) -> _Promise:
        promise = _Promise(self._kernel, partial(work, *args))
        self._queue.append(promise)
        if self._free:
            self._free -= 1
            self._kernel.spawn("worker", self._labour)
        return promise

    def _labour(self) -> None:
        while self._queue:
            self._queue.popleft().execute()
        self._free += 1

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        promises = [self.submit(work, item) for item in items]
        return [promise.result() for promise in promises]

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *_: object) -> None: ...
