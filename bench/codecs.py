"""How fast each codec encodes and decodes on one core, against memcpy, and into how many bytes.

Whole objects are made and read, checksums and header included, of normally distributed values; a store is not involved.
Times are CPU times, so that other processes on the machine have less effect.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.table import Row
from muster.contract.document import StoredDocument
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import Codec
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES, Encoding, Floats, encode, put_values
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.stream_decoder import ByteStream, decoded_stream

_COUNT = 1 << 24  # 64 MiB of float32
_TRIES = 7
_MEMBERS = 4
_CODECS = ("fp32", "bf16", "fp16", "int8", "int4", "topk2-64", "topk2-128")
# Codecs and directions whose speed has an aim.
_AIMS = {
    ("int8", "encode"): ">= 1",
    ("int8", "decode"): ">= 1",
    ("int4", "encode"): ">= 2",
    ("int4", "encode with error feedback"): ">= 1.5",
    ("int4", "decode"): ">= 1",
    ("topk2-64", "encode"): ">= 1.5",
    ("topk2-64", "decode"): ">= 3",
    ("topk2-128", "encode"): ">= 1.5",
    ("topk2-128", "decode"): ">= 3",
}
_KEY = rendezvous_keys.contribution(1, 0, 1)


class _Header(StoredDocument):
    pass


@dataclass
class _Case:
    """A codec's object of `values`, and the CPU seconds to encode and to decode it (the best of all tries)."""

    codec: Codec
    values: Floats
    seconds: dict[str, float]

    def measure(self, room: Floats) -> int:
        """One try of everything; returns the object's size in bytes."""
        self.time("encode", lambda: encode(_KEY, self.values, lambda _: _Header(), Encoding(self.codec)))
        self.time(
            "encode a mean", lambda: encode(_KEY, self.values, lambda _: _Header(), Encoding(self.codec, dither=True))
        )
        self.time("encode with error feedback", lambda: self._feed_back(room))
        body = encode(_KEY, self.values, lambda _: _Header(), Encoding(self.codec))
        self.time("decode", lambda: self._decode(body[HEADER_BYTES:], room))
        return len(body)

    def _decode(self, records: memoryview, room: Floats) -> None:
        blocks = Blocks(self.values.size, self.codec)
        for run, values in decoded_stream(_KEY, ByteStream([records]), blocks, range(blocks.number)):
            put_values(room[blocks.span(run)], values)

    def _feed_back(self, room: Floats) -> None:
        encode(_KEY, self.values, lambda _: _Header(), Encoding(self.codec, error=room))

    def time(self, name: str, work: Callable[[], object]) -> None:
        """Run `work` and keep its time, if it is the best so far."""
        started = time.process_time()
        work()
        taken = time.process_time() - started
        self.seconds[name] = min(taken, self.seconds.get(name, taken))


def run() -> list[Row]:
    """Per codec: GB/s of float32 values in each direction (memcpy for comparison), and its bytes relative to fp32."""
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(affinity)})
    try:
        return _rows()
    finally:
        os.sched_setaffinity(0, affinity)


def _rows() -> list[Row]:
    values = np.random.default_rng(0).standard_normal(_COUNT).astype(np.float32)
    room = np.empty_like(values)
    cases = [_Case(codec_named(name), values, {}) for name in _CODECS]
    copying = _Case(cases[0].codec, values, {})
    sizes: dict[str, int] = {}
    # Alternating, so that a busy period affects all of them.
    for _ in range(_TRIES):
        copying.time("memcpy", lambda: np.copyto(room, values))
        for case in cases:
            sizes[case.codec.name] = case.measure(room)
    memcpy = _speed(copying.seconds["memcpy"])
    rows = [Row("memcpy", memcpy, "GB/s", None, None, f"numpy.copyto of {values.nbytes >> 20} MiB, best of {_TRIES}")]
    for case in cases:
        rows += _speeds(case, memcpy)
    return rows + [_bytes_row(case.codec, sizes) for case in cases]


def _speeds(case: _Case, memcpy: float) -> list[Row]:
    rows = []
    for name, seconds in case.seconds.items():
        speed = _speed(seconds)
        note = f"of float32 values; memcpy is {memcpy / speed:.1f} times as fast"
        rows.append(Row(f"{case.codec.name}: {name}", speed, "GB/s", _AIMS.get((case.codec.name, name)), memcpy, note))
    return rows


def _bytes_row(codec: Codec, sizes: dict[str, int]) -> Row:
    """A round moves every value twice, in a contribution and in a mean."""
    mean = codec.for_mean(_MEMBERS)
    whole = 2 * sizes["fp32"]
    coded = sizes[codec.name] + len(encode(_KEY, np.zeros(_COUNT, np.float32), lambda _: _Header(), Encoding(mean)))
    aim = "<= 0.14" if codec.name == "int4" else None
    note = f"contribution and mean of {_MEMBERS} members ({mean.label})"
    return Row(f"{codec.name}: bytes", coded / whole, "of fp32's", aim, None, note)


def _speed(seconds: float) -> float:
    return 4 * _COUNT / seconds / 1e9
