"""Where the time of a round goes: the functions of each stage are timed, each without those that it calls.

Wall time is that of the thread which makes the round, so that the stages and what is left add up to the round's. CPU is
that of all Python's threads. What obstore's own threads take, for small requests, is the rest of the process's.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import obstore

from muster.replica.codecs import plain
from muster.replica.codecs.base import Codec
from muster.replica.kernel import Kernel
from muster.replica.rounds import reduced_shards, reduction, round_context, weighted_mean
from muster.replica.store.bulk.transfers import Transfers
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.wire import binary_format, stream_decoder

SEND, RECEIVE, SMALL, WAIT, ASIDE = "send", "receive", "small requests", "wait for others", "requests side by side"
"""`small requests` are those that carry no values: commits, headers, looks."""
_SMALL_BYTES = 65_536
# A class or module, the name in it, and the stage.
_PLACES: tuple[tuple[Any, str, str], ...] = (
    (plain, "refuse_unusable", "check values"),
    (binary_format, "refuse_unusable", "check values"),
    (binary_format, "_checksum", "checksum"),
    (stream_decoder, "decoded", "verify"),
    (stream_decoder.ByteStream, "take", "take what has arrived"),
    (weighted_mean.WeightedMean, "_add", "weigh and add"),
    (Kernel, "encode", "encode, checksum"),
    (Kernel, "decode", "verify, decode, add"),
    (binary_format, "encode_records", "pack"),
    (reduced_shards.ReducedShards, "_computed", "pack"),
    (round_context.Polling, "rest", WAIT),
    (round_context.RoundContext, "side_by_side", ASIDE),
    (Transfers, "put", SEND),
    (Transfers, "put_part", SEND),
)


@dataclass
class Stages:
    """Seconds by stage: of wall in the thread that has made this, of CPU in all threads."""

    wall: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    cpu: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    _thread: int = field(default_factory=threading.get_ident)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _local: threading.local = field(default_factory=threading.local)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what is done here, without the stages within."""
        outer: list[list[float]] = self._local.__dict__.setdefault("open", [])
        outer.append([0.0, 0.0])
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
            within = outer.pop()
            if outer:
                outer[-1][0] += wall
                outer[-1][1] += cpu
            with self._lock:
                if threading.get_ident() == self._thread:
                    self.wall[name] += wall - within[0]
                self.cpu[name] += cpu - within[1]

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, as the stage `name`."""

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return function(*args, **kwargs)

        return timed

    def document(self) -> dict[str, tuple[float, float]]:
        """Wall and CPU seconds by stage."""
        return {name: (self.wall[name], self.cpu[name]) for name in sorted(self.cpu)}


@contextmanager
def measured(codec: Codec) -> Iterator[Stages]:
    """Time the stages of the rounds that are made meanwhile in this process."""
    stages = Stages()
    places = [*_PLACES, (type(codec), "encode", "encode"), (type(codec), "decode", "decode")]
    former = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    for (owner, name, stage), (_, _, function) in zip(places, former, strict=True):
        setattr(owner, name, stages.timed(stage, function))
    sink, stream, call, put = (
        reduction.Reduction._sink,
        S3ObjectStore.stream,
        S3ObjectStore._call,
        obstore.put,
    )

    def timed_stream(
        self: S3ObjectStore, key: str, start: int, stop: int, *, sizes: tuple[int, int] = (0, 0)
    ) -> Iterator[memoryview]:
        pieces = stream(self, key, start, stop, sizes=sizes)
        while True:
            with stages.stage(RECEIVE):
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def timed_put(client: Any, path: str, body: Any, **options: Any) -> Any:
        large = not isinstance(body, bytes | bytearray | memoryview) or len(body) > _SMALL_BYTES
        with stages.stage(SEND if large else SMALL):
            return put(client, path, body, **options)

    reduction.Reduction._sink = lambda self, shard: stages.timed("unpack", sink(self, shard))  # type: ignore[method-assign]
    S3ObjectStore.stream = timed_stream  # type: ignore[method-assign]
    S3ObjectStore._call = stages.timed(SMALL, call)  # type: ignore[method-assign]
    obstore.put = timed_put  # type: ignore[assignment]
    try:
        yield stages
    finally:
        for owner, name, function in former:
            setattr(owner, name, function)
        reduction.Reduction._sink, S3ObjectStore.stream, S3ObjectStore._call = sink, stream, call  # type: ignore[method-assign]
        obstore.put = put
