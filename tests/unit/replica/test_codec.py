"""The byte format: what was written is read back, and nothing else is ever taken for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from muster.contract.document import StoredDocument
from muster.replica.codecs.base import MAGNITUDE_MAX
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    CodecError,
    Floats,
    byte_range,
    decode_blocks,
    decode_header,
    encode,
    object_bytes,
)
from muster.replica.wire.blocks import (
    BLOCK_ELEMENTS_MAX,
    BLOCK_ELEMENTS_MIN,
    CONNECTIONS,
    SHARD_BYTES_AIM,
    SHARD_BYTES_MAX,
    Blocks,
)

KEY = "states/00000003"

BOUND = float(MAGNITUDE_MAX)
values_of = arrays(np.float32, st.integers(1, 3000), elements=st.floats(-BOUND, BOUND, width=32))


class Header(StoredDocument):
    text: str


def header_of(count: int) -> Header:
    return Header(text=str(count))


def encoded(values: Floats, key: str = KEY) -> bytes:
    return bytes(encode(key, values, lambda _: header_of(values.size)))


def decoded(body: bytes, count: int, key: str = KEY) -> Floats:
    view = memoryview(body)
    assert decode_header(key, view, Header) == header_of(count)
    blocks = Blocks(count)
    return decode_blocks(key, view[HEADER_BYTES:], blocks, range(blocks.number))


@given(values_of)
def test_values_survive_bit_by_bit(values: Floats) -> None:
    body = encoded(values)
    assert len(body) == object_bytes(values.size)
    assert decoded(body, values.size).tobytes() == values.tobytes()


@given(values_of, st.data())
def test_any_run_of_blocks_can_be_read_alone(values: Floats, data: st.DataObject) -> None:
    blocks = Blocks(values.size)
    first = data.draw(st.integers(0, blocks.number - 1))
    which = range(first, data.draw(st.integers(first + 1, blocks.number)))
    start, stop = byte_range(blocks, which)
    part = decode_blocks(KEY, memoryview(encoded(values))[start:stop], blocks, which)
    assert part.tobytes() == values[blocks.span(which)].tobytes()


@given(st.integers(1, 600), st.data())
def test_one_changed_bit_is_never_accepted_as_something_else(count: int, data: st.DataObject) -> None:
    values = np.arange(count, dtype=np.float32)
    body = bytearray(encoded(values))
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8
    try:
        assert decoded(bytes(body), count).tobytes() == values.tobytes()
        # Only the zeros between header and records carry nothing.
        assert bit // 8 < HEADER_BYTES
    except CodecError:
        pass


@given(st.integers(1, 600), st.data())
def test_a_truncated_object_is_refused(count: int, data: st.DataObject) -> None:
    body = encoded(np.ones(count, np.float32))
    length = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(CodecError):
        decoded(body[:length], count)


@settings(max_examples=300)
@given(st.binary(max_size=HEADER_BYTES + 2000), st.integers(1, 500))
def test_garbage_is_refused(body: bytes, count: int) -> None:
    with pytest.raises(CodecError):
        decoded(body, count)


@given(st.binary(max_size=HEADER_BYTES))
def test_garbage_behind_a_true_beginning_is_refused(garbage: bytes) -> None:
    body = encoded(np.ones(4, np.float32))[:16] + garbage
    with pytest.raises(CodecError):
        decode_header(KEY, memoryview(body.ljust(HEADER_BYTES, b"\0")), Header)


def test_an_object_under_another_key_is_refused() -> None:
    values = np.ones(10, np.float32)
    with pytest.raises(CodecError, match="checksum of block 0"):
        decoded(encoded(values, "states/00000002"), 10)


def test_blocks_in_another_order_are_refused() -> None:
    values = np.arange(2 * BLOCK_ELEMENTS_MIN, dtype=np.float32)
    body = encoded(values)
    size = Blocks(values.size).record_bytes
    swapped = body[:HEADER_BYTES] + body[HEADER_BYTES + size :] + body[HEADER_BYTES : HEADER_BYTES + size]
    with pytest.raises(CodecError, match="checksum of block 0"):
        decoded(swapped, values.size)


def test_a_header_that_does_not_fit_is_refused() -> None:
    header = Header(text="x" * HEADER_BYTES)
    with pytest.raises(CodecError, match="at most"):
        encode(KEY, None, lambda _: header)


@given(st.integers(1, 2**33), st.integers(1, 10_000), st.booleans())
def test_shards_cover_every_block_once_and_their_number_is_bounded(count: int, members: int, of_mean: bool) -> None:
    blocks = Blocks(count)
    assert blocks.elements <= BLOCK_ELEMENTS_MAX
    assert (blocks.number - 1) * blocks.elements < count <= blocks.number * blocks.elements
    shards, most_bytes = blocks.shards(members), SHARD_BYTES_MAX
    if of_mean:
        fewer, shards, most_bytes = shards, blocks.shards_of_mean(members), SHARD_BYTES_AIM
        assert fewer <= shards <= max(2 * CONNECTIONS, fewer * SHARD_BYTES_MAX // SHARD_BYTES_AIM)
    assert 1 <= shards <= members or shards % members == 0 or shards <= 2 * CONNECTIONS
    assert blocks.number * blocks.record_bytes <= shards * 1.5 * most_bytes
    edges = [blocks.shard(index, shards) for index in (0, shards // 2, shards - 1)]
    assert edges[0].start == 0
    assert edges[-1].stop == blocks.number
    assert all(len(edge) for edge in edges)
    assert blocks.shard(0, shards).stop == (blocks.shard(1, shards).start if shards > 1 else blocks.number)
