"""Codecs and the bytes of objects: what a value may lose, that nothing is lost for ever, and what is refused."""

from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import cycle

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from muster.contract.document import StoredDocument
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import MAGNITUDE_MAX, Codec
from muster.replica.codecs.scales import SCALE_MIN
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    CodecError,
    Encoding,
    Floats,
    byte_range,
    decode_header,
    encode,
    object_bytes,
    put_values,
)
from muster.replica.wire.blocks import (
    BLOCK_ELEMENTS_MAX,
    BLOCK_ELEMENTS_MIN,
    CHECKSUM_BYTES,
    CONNECTIONS,
    SHARD_BYTES_AIM,
    SHARD_BYTES_MAX,
    Blocks,
)
from muster.replica.wire.stream_decoder import READ_TRIES, ByteStream, RecordReader, decoded_stream
from muster.replica.wire.weighted_sum import WeightedSum
from tests.support.decoded_blocks import decode_blocks

KEY = rendezvous_keys.reduced(1, 0, 0)
NAMES = ["fp32", "bf16", "fp16", "int8", "int4", "topk2-64", "topk2-128"]
CODECS = {name: codec_named(name) for name in NAMES}
MEANS = {f"topk2-64 of {members}": CODECS["topk2-64"].for_mean(members) for members in (1, 3, 8)}
ALL = CODECS | MEANS

examples = settings(max_examples=50)
seeds = st.integers(0, 2**32 - 1)


class Header(StoredDocument):
    text: str = ""


def encoded(values: Floats, codec: Codec, *, dither: bool = False, error: Floats | None = None) -> memoryview:
    return encode(KEY, values, lambda _: Header(), Encoding(codec, dither=dither, error=error))


def decoded(body: memoryview, count: int, codec: Codec) -> Floats:
    blocks = Blocks(count, codec)
    return decode_blocks(KEY, body[HEADER_BYTES:], blocks, range(blocks.number))


def passed_through(values: Floats, codec: Codec, *, dither: bool = False) -> Floats:
    return decoded(encoded(values, codec, dither=dither), values.size, codec)


@st.composite
def gradients(draw: st.DrawFn, limit: float = 6e4) -> Floats:
    """Like pseudo-gradients: normal, heavy-tailed or sparse, of any scale; or whatever hypothesis thinks of."""
    count = draw(st.integers(1, 9000))
    kind = draw(st.sampled_from(["normal", "tails", "sparse", "rows", "any"]))
    if kind == "any":
        return draw(arrays(np.float32, st.integers(1, 600), elements=st.floats(-limit, limit, width=32)))
    rng = np.random.default_rng(draw(seeds))
    values = rng.standard_normal(count)
    if kind == "tails":
        values = rng.standard_t(2, count)
    elif kind == "sparse":
        values *= rng.random(count) < 0.05
    elif kind == "rows":
        values *= np.exp(3 * rng.standard_normal(count // 128 + 1)).repeat(128)[:count]
    scale = 10.0 ** draw(st.integers(-30, 2))
    return np.clip(values * scale, -limit, limit).astype(np.float32)


def peaks(values: Floats, group: int) -> Floats:
    """The largest magnitude of each group, for each value."""
    padded = np.zeros(-(-values.size // group) * group, np.float32)
    padded[: values.size] = np.abs(values)
    return padded.reshape(-1, group).max(axis=1).repeat(group)[: values.size]


def bound(name: str, values: Floats, *, dither: bool = False) -> Floats:
    """The largest error that the codec's text allows for each value."""
    tiny = np.float32(SCALE_MIN)
    match name:
        case "fp32":
            return np.zeros_like(values)
        case "bf16":
            return np.abs(values) * np.float32(2**-8) + np.float32(2**-134)
        case "fp16":
            return np.maximum(np.abs(values) * np.float32(2**-11), np.float32(2**-25))
        case "int8":
            return peaks(values, 128) * np.float32(0.008 if dither else 0.004) + tiny
        case "int4":
            return peaks(values, 64) * np.float32(0.25 if dither else 0.16) + tiny
    return peaks(values, 4096) * np.float32(1.01) + tiny


@examples
@given(values=gradients(), dither=st.booleans())
def test_no_value_loses_more_than_its_codec_allows(values: Floats, dither: bool) -> None:
    for name, codec in CODECS.items():
        error = np.abs(passed_through(values, codec, dither=dither).astype(np.float64) - values)
        assert np.all(error <= bound(name, values, dither=dither)), name


@examples
@given(values=gradients(), dither=st.booleans())
@example(values=np.resize(np.array([1, -1e-6, 0.5], np.float32), 9_000), dither=False)  # some round to -0
def test_what_a_writer_keeps_is_what_a_reader_decodes_and_what_it_lacks(values: Floats, dither: bool) -> None:
    for name, codec in ALL.items():
        kept, error = np.empty_like(values), values.copy()
        body = encode(KEY, values, lambda _: Header(), Encoding(codec, dither=dither, decoded=kept))
        found = decoded(body, values.size, codec)
        assert kept.tobytes() == found.tobytes(), name
        # Every process makes the same bytes, also where the error takes the place of the values.
        assert bytes(encoded(error, codec, dither=dither, error=error)) == bytes(body), name
        assert error.tobytes() == (values - found).tobytes(), name


@examples
@given(values=gradients())
def test_what_was_decoded_is_coded_without_loss(values: Floats) -> None:
    assert passed_through(values, CODECS["fp32"]).tobytes() == values.tobytes()
    for name in ("bf16", "fp16"):
        once = passed_through(values, CODECS[name])
        assert passed_through(once, CODECS[name]).tobytes() == once.tobytes(), name


@examples
@given(values=gradients(), members=st.integers(1, 8))
def test_the_mean_of_sparse_vectors_keeps_every_place(values: Floats, members: int) -> None:
    codec = CODECS["topk2-64"]
    parts = [passed_through(np.roll(values, 7 * member), codec) for member in range(members)]
    mean = np.mean(parts, axis=0, dtype=np.float32)
    error = np.abs(passed_through(mean, codec.for_mean(members)) - mean)
    assert np.all(error <= peaks(mean, 4096) * np.float32(0.004) + np.float32(SCALE_MIN))


@examples
@given(values=gradients())
def test_topk_keeps_the_largest_of_each_chunk(values: Floats) -> None:
    kept = passed_through(values, CODECS["topk2-64"]) != 0
    for start in range(0, values.size, 4096):
        chosen, magnitudes = kept[start : start + 4096], np.abs(values[start : start + 4096])
        assert chosen.sum() <= 64
        if chosen.sum() == 64 and not chosen.all():
            assert magnitudes[~chosen].max() <= np.sort(magnitudes)[-64:].min()


def test_values_that_cannot_be_averaged_are_not_encoded(subtests: pytest.Subtests) -> None:
    for name, codec in ALL.items():
        for value in (np.nan, np.inf, -np.inf, 2e30, *([70_000] if name == "fp16" else [])):
            for place in (0, 300, 5000):
                values = np.ones(5001, np.float32)
                values[place] = value
                with subtests.test(name, value=value, place=place), pytest.raises(CodecError, match="NaN, infinity or"):
                    encoded(values, codec)


def test_the_largest_magnitudes_pass() -> None:
    for name, codec in ALL.items():
        values = np.full(5000, codec.limit, np.float32)
        values[::2] *= -1
        assert np.all(np.abs(passed_through(values, codec)) <= MAGNITUDE_MAX), name


def forged(codec: Codec, payload: bytes) -> Floats:
    """Decode what no encoder gave, its checksums in order."""
    values = np.empty((1, codec.grain), np.float32)
    room = np.frombuffer(payload[: codec.payload_bytes(codec.grain)], np.uint8)
    codec.decode(room.reshape(1, -1), values)
    return values


def test_absurd_scales_and_places_are_refused(subtests: pytest.Subtests) -> None:
    for name in ("int8", "int4"):
        for scale in (0x7FC0, 0x7F80, 0xFF80, 0x7F00, 0x0001, 0x8000):
            with subtests.test(name, scale=scale), pytest.raises(CodecError, match="scale"):
                forged(CODECS[name], scale.to_bytes(2, "little") * 2000)
    for payload in (b"\0" * 4096, b"\xff" * 4096, b"\0" * 4 + b"\xff" * 8 + b"\0" * 4096):
        with subtests.test("places", payload=payload[:12]), pytest.raises(CodecError):
            forged(CODECS["topk2-64"], payload)


@examples
@given(payload=st.binary(min_size=64, max_size=64), seed=seeds)
@example(payload=b"\x49\x71" * 32, seed=0)  # int8's largest scale
def test_whatever_lies_in_a_block_a_codec_refuses_it_or_gives_bounded_values(payload: bytes, seed: int) -> None:
    # The plain codecs' values are judged by the process that decodes an object.
    for name, codec in ALL.items():
        noise = np.random.default_rng(seed).bytes(codec.payload_bytes(codec.grain))
        try:
            values = forged(codec, payload + noise)
        except CodecError:
            continue
        # No encoder writes int8's -128, a 127th more than the scale; a decoder refuses it beyond the limit, too.
        most = MAGNITUDE_MAX * (128 / 127 if codec.name == "int8" else 1)
        assert codec.name in {"fp32", "bf16", "fp16"} or np.all(np.abs(values) <= most), name


def test_dither_passes_on_average_what_rounding_drops() -> None:
    values = np.full(64 * 1024, 0.001, np.float32)
    values[::64] = 1.0
    small = values == values[1]
    for name in ("int8", "int4"):
        codec, blocks, means = CODECS[name], Blocks(values.size, CODECS[name]), []
        for round_ in range(200):
            key = rendezvous_keys.reduced(round_, 0, 0)
            body = encode(key, values, lambda _: Header(), Encoding(codec, dither=True))
            means.append(decode_blocks(key, body[HEADER_BYTES:], blocks, range(blocks.number))[small].mean())
        assert np.mean(means) == pytest.approx(0.001, rel=0.05), name
        assert np.all(passed_through(values, codec)[small] == 0), name


def test_an_unknown_codec_is_refused_with_the_list_of_all() -> None:
    for name in ("", "int5", "topk2", "topk2-8", "topk2-100", "topk2-1024", "fp32/1"):
        with pytest.raises(ValueError, match="allowed: fp32, bf16, fp16, int8, int4, and topk2-K"):
            codec_named(name)


def test_a_record_stays_aligned_and_int4_takes_at_most_an_eighth_and_its_scales() -> None:
    for name, codec in ALL.items():
        for count in (1, 4096, 10**6, 10**9):
            assert (Blocks(count, codec).record_bytes - CHECKSUM_BYTES) % 4 == 0, (name, count)
            assert Blocks(count, codec).elements % codec.grain == 0, (name, count)
    assert object_bytes(10**8, CODECS["int4"]) <= 0.134 * object_bytes(10**8)
    # Nor does the mean of sparse vectors take more than int4.
    int4, topk = CODECS["int4"].payload_bytes(4096), CODECS["topk2-64"]
    assert [n for n in (1, 2, 7, 9, 16, 40, 1000) if topk.for_mean(n).payload_bytes(4096) > int4] == []


# --- the bytes of objects -------------------------------------------------------------------------------------------


def whole(values: Floats, key: str = KEY) -> bytes:
    """An object, whose header says how many values it has."""
    return bytes(encode(key, values, lambda _: Header(text=str(values.size))))


def taken_apart(body: bytes, count: int) -> Floats:
    view = memoryview(body)
    assert decode_header(KEY, view, Header) == Header(text=str(count))
    return decoded(view, count, CODECS["fp32"])


@given(st.integers(1, 600), st.data())
def test_one_changed_bit_is_never_accepted_as_something_else(count: int, data: st.DataObject) -> None:
    values = np.arange(count, dtype=np.float32)
    body = bytearray(whole(values))
    bit = data.draw(st.integers(0, len(body) * 8 - 1))
    body[bit // 8] ^= 1 << bit % 8
    try:
        assert taken_apart(bytes(body), count).tobytes() == values.tobytes()
        # Only the zeros between header and records carry nothing.
        assert bit // 8 < HEADER_BYTES
    except CodecError:
        pass


@settings(max_examples=300)
@given(st.binary(max_size=HEADER_BYTES + 2000), st.integers(1, 500), st.data())
def test_garbage_and_truncated_objects_are_refused(body: bytes, count: int, data: st.DataObject) -> None:
    whole_one = whole(np.ones(count, np.float32))
    truncated = whole_one[: data.draw(st.integers(0, len(whole_one) - 1))]
    begun = (whole_one[:16] + body[: HEADER_BYTES - 16]).ljust(len(whole_one), b"\0")
    for wrong in (body, truncated, begun):
        with pytest.raises(CodecError):
            taken_apart(wrong, count)


def test_an_object_under_another_key_or_with_blocks_in_another_order_is_refused() -> None:
    values = np.arange(2 * BLOCK_ELEMENTS_MIN, dtype=np.float32)
    body, size = whole(values), Blocks(values.size).record_bytes
    swapped = body[:HEADER_BYTES] + body[HEADER_BYTES + size :] + body[HEADER_BYTES : HEADER_BYTES + size]
    for other in (whole(values, rendezvous_keys.reduced(2, 0, 0)), swapped):
        with pytest.raises(CodecError, match="checksum of block 0"):
            taken_apart(other, values.size)


def test_a_header_that_does_not_fit_is_refused() -> None:
    with pytest.raises(CodecError, match="at most"):
        encode(KEY, None, lambda _: Header(text="x" * HEADER_BYTES))


@given(st.integers(1, 2**33), st.integers(1, 10_000), st.booleans())
def test_shards_cover_every_block_once_and_their_number_is_bounded(count: int, members: int, of_mean: bool) -> None:
    blocks = Blocks(count)
    assert blocks.elements <= BLOCK_ELEMENTS_MAX
    assert (blocks.number - 1) * blocks.elements < count <= blocks.number * blocks.elements
    shards, most_bytes = blocks.shards(members), SHARD_BYTES_MAX
    if of_mean:
        fewer, shards, most_bytes = shards, blocks.shards_of_mean(members), SHARD_BYTES_AIM
        assert fewer <= shards
        assert (
            shards <= max(fewer, 2 * CONNECTIONS) or blocks.number * blocks.record_bytes >= shards * 0.75 * most_bytes
        )
    assert 1 <= shards <= members or shards % members == 0 or shards <= 2 * CONNECTIONS
    assert blocks.number * blocks.record_bytes <= shards * 1.5 * most_bytes
    edges = [blocks.shard(index, shards) for index in (0, shards // 2, shards - 1)]
    assert edges[0].start == 0
    assert edges[-1].stop == blocks.number
    assert all(len(edge) for edge in edges)
    assert blocks.shard(0, shards).stop == (blocks.shard(1, shards).start if shards > 1 else blocks.number)


# --- Values decoded while their bytes come in, in whatever pieces ---------------------------------------------------

STREAMED = "contributions/1"
COUNT = 300_000
VALUES = np.random.default_rng(0).standard_normal(COUNT).astype(np.float32)
BODY = bytes(encode(STREAMED, VALUES, lambda _: Header()))
BLOCKS = Blocks(COUNT)
ALL_BLOCKS = range(BLOCKS.number)


def in_pieces(body: bytes, sizes: list[int]) -> Iterator[memoryview]:
    """`body`, cut into pieces of these sizes, over and over."""
    start, turns = 0, cycle(sizes)
    while start < len(body):
        yield memoryview(body)[start : (start := start + next(turns))]


@given(sizes=st.lists(st.integers(1, 400_000), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) > 5_000))
def test_the_sizes_in_which_bytes_come_do_not_matter(sizes: list[int]) -> None:
    stream = ByteStream(in_pieces(BODY, sizes))
    assert stream.take(HEADER_BYTES) == BODY[:HEADER_BYTES]
    values = np.empty(COUNT, np.float32)
    for run, found in decoded_stream(STREAMED, stream, BLOCKS, ALL_BLOCKS):
        put_values(values[BLOCKS.span(run)], found)
    assert values.tobytes() == VALUES.tobytes()


def test_too_few_or_too_many_bytes_are_refused() -> None:
    for body in (BODY[HEADER_BYTES:-1], BODY[HEADER_BYTES:] + b"x", b""):
        with pytest.raises(CodecError):
            deque(decoded_stream(STREAMED, ByteStream([memoryview(body)]), BLOCKS, ALL_BLOCKS), maxlen=0)


@pytest.mark.parametrize("damaged_times", [READ_TRIES - 1, READ_TRIES])
def test_damage_on_the_way_passes_with_another_look_at_the_rest(damaged_times: int) -> None:
    damaged = bytearray(BODY)
    damaged[byte_range(BLOCKS, range(BLOCKS.number - 1, BLOCKS.number))[0] + 9] ^= 1
    looks: list[int] = []

    def open_at(rest: range) -> ByteStream:
        looks.append(rest.start)
        start, stop = byte_range(BLOCKS, rest)
        return ByteStream([memoryview(BODY if len(looks) > damaged_times else bytes(damaged))[start:stop]])

    records = RecordReader(STREAMED, open_at, BLOCKS, ALL_BLOCKS)
    values, room = np.empty(COUNT, np.float32), np.empty(BLOCKS.piece_elements, np.float32)
    with pytest.raises(CodecError, match="block") if damaged_times == READ_TRIES else nullcontext():
        for run in BLOCKS.pieces(ALL_BLOCKS):
            records.add(run, WeightedSum(values[BLOCKS.span(run)], room, held=False), np.float32(1))
        assert values.tobytes() == VALUES.tobytes()
    # What was decoded before the damage is not read again.
    assert looks[0] == 0
    assert all(look > 0 for look in looks[1:])
