"""Values decoded while their bytes come in, in whatever pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.replica.wire.binary_format import HEADER_BYTES, CodecError, byte_range, encode, put_values
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.headers import ClaimDocument
from muster.replica.wire.stream_decoder import READ_TRIES, ByteStream, RecordReader, decoded_stream

KEY = "contributions/1"
COUNT = 300_000
VALUES = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
HEADER = ClaimDocument(run="run", rank=0, attempt=1, incarnation=1, nonce="n")
BODY = bytes(encode(KEY, VALUES, lambda _: HEADER))
BLOCKS = Blocks(COUNT)
ALL = range(BLOCKS.number)


def in_pieces(body: bytes, sizes: list[int]) -> Iterator[memoryview]:
    """`body`, cut into pieces of these sizes, over and over."""
    start, turn = 0, 0
    while start < len(body):
        size = sizes[turn % len(sizes)]
        yield memoryview(body)[start : start + size]
        start, turn = start + size, turn + 1


@given(sizes=st.lists(st.integers(1, 400_000), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) > 5_000))
def test_the_sizes_in_which_bytes_come_do_not_matter(sizes: list[int]) -> None:
    stream = ByteStream(in_pieces(BODY, sizes))
    assert stream.take(HEADER_BYTES) == BODY[:HEADER_BYTES]
    values = np.empty(COUNT, np.float32)
    for run, found in decoded_stream(KEY, stream, BLOCKS, ALL):
        put_values(values[BLOCKS.span(run)], found)
    assert values.tobytes() == VALUES.tobytes()


@pytest.mark.parametrize("body", [BODY[HEADER_BYTES:-1], BODY[HEADER_BYTES:] + b"x", b""])
def test_too_few_or_too_many_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(CodecError):
        deque(decoded_stream(KEY, ByteStream([memoryview(body)]), BLOCKS, ALL), maxlen=0)


@pytest.mark.parametrize("damaged_times", [1, READ_TRIES - 1, READ_TRIES])
def test_damage_on_the_way_passes_with_another_look_at_the_rest(damaged_times: int) -> None:
    damaged = bytearray(BODY)
    damaged[byte_range(BLOCKS, range(BLOCKS.number - 1, BLOCKS.number))[0] + 9] ^= 1
    looks: list[int] = []

    def open_at(rest: range) -> ByteStream:
        looks.append(rest.start)
        body = bytes(damaged) if len(looks) <= damaged_times else BODY
        start, stop = byte_range(BLOCKS, rest)
        return ByteStream([memoryview(body)[start:stop]])

    def decode() -> bytes:
        records = RecordReader(KEY, open_at, BLOCKS, ALL)
        values, room = np.empty(COUNT, np.float32), np.empty(BLOCKS.piece_elements, np.float32)
        for run in BLOCKS.pieces(ALL):
            put_values(values[BLOCKS.span(run)], records.values(run, room))
        return values.tobytes()

    if damaged_times == READ_TRIES:
        with pytest.raises(CodecError, match=f"block {BLOCKS.number - 1}"):
            decode()
    else:
        assert decode() == VALUES.tobytes()
    # What was decoded before the damage is not read again.
    assert looks[0] == 0
    assert all(look > 0 for look in looks[1:])
