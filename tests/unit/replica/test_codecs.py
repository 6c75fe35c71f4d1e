"""Codecs: what a value may lose, that bytes are found by their place, and that nothing is lost for ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from muster.contract.document import StoredDocument
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import MAGNITUDE_MAX, Codec, Dither
from muster.replica.codecs.error_feedback import ErrorFeedback
from muster.replica.codecs.scales import SCALE_MIN
from muster.replica.wire import keys
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    CodecError,
    Encoding,
    Floats,
    byte_range,
    decode_blocks,
    encode,
    object_bytes,
)
from muster.replica.wire.blocks import BLOCK_ELEMENTS_MAX, CHECKSUM_BYTES, PIECE_ELEMENTS, Blocks

KEY = keys.reduced(1, 0, 0)
NAMES = ["fp32", "bf16", "fp16", "int8", "int4", "topk2-64", "topk2-128"]
CODECS = {name: codec_named(name) for name in NAMES}
MEANS = {f"{name} of {members}": CODECS[name].for_mean(members) for name in ("topk2-64",) for members in (1, 3, 8)}
ALL = CODECS | MEANS
LOSING = [name for name, codec in CODECS.items() if codec.loses]

every_codec = pytest.mark.parametrize("codec", ALL.values(), ids=ALL.keys())
# A machine that is busy with other tests is no reason to fail.
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


@pytest.mark.parametrize("dither", [False, True], ids=["nearest", "dither"])
@pytest.mark.parametrize("name", NAMES)
@examples
@given(values=gradients())
def test_no_value_loses_more_than_its_codec_allows(name: str, dither: bool, values: Floats) -> None:
    error = np.abs(passed_through(values, CODECS[name], dither=dither).astype(np.float64) - values)
    assert np.all(error <= bound(name, values, dither=dither))


@every_codec
@examples
@given(values=gradients(), data=st.data())
def test_any_run_of_blocks_is_found_by_its_bytes_and_decodes_alone(
    codec: Codec, values: Floats, data: st.DataObject
) -> None:
    body = encoded(values, codec)
    assert len(body) == object_bytes(values.size, codec)
    blocks = Blocks(values.size, codec)
    first = data.draw(st.integers(0, blocks.number - 1))
    which = range(first, data.draw(st.integers(first + 1, blocks.number)))
    start, stop = byte_range(blocks, which)
    part = decode_blocks(KEY, body[start:stop], blocks, which)
    assert part.tobytes() == decoded(body, values.size, codec)[blocks.span(which)].tobytes()


@every_codec
@examples
@given(values=gradients())
def test_the_error_left_behind_is_what_a_reader_lacks(codec: Codec, values: Floats) -> None:
    error = values.copy()
    body = encoded(error, codec, error=error)
    assert bytes(body) == bytes(encoded(values, codec))
    assert error.tobytes() == (values - decoded(body, values.size, codec)).tobytes()


@every_codec
@pytest.mark.parametrize("dither", [False, True], ids=["nearest", "dither"])
def test_what_a_writer_continues_with_is_what_a_reader_decodes(codec: Codec, dither: bool) -> None:
    values = np.random.default_rng(0).standard_normal(9_000).astype(np.float32)
    values[::3] *= np.float32(-1e-6)  # which round to -0
    values[600:700] = 0
    found = np.empty_like(values)
    body = encode(KEY, values, lambda _: Header(), Encoding(codec, dither=dither, decoded=found))
    assert found.tobytes() == decoded(body, values.size, codec).tobytes()


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp16"])
@examples
@given(values=gradients())
def test_what_was_decoded_is_coded_without_loss(name: str, values: Floats) -> None:
    once = passed_through(values, CODECS[name])
    assert passed_through(once, CODECS[name]).tobytes() == once.tobytes()


@examples
@given(values=gradients(), members=st.integers(1, 8))
def test_the_mean_of_sparse_vectors_keeps_every_place(values: Floats, members: int) -> None:
    codec = CODECS["topk2-64"]
    parts = [passed_through(np.roll(values, 7 * member), codec) for member in range(members)]
    mean = np.mean(parts, axis=0, dtype=np.float32)
    error = np.abs(passed_through(mean, codec.for_mean(members)) - mean)
    assert np.all(error <= peaks(mean, 4096) * np.float32(0.004) + np.float32(SCALE_MIN))


@pytest.mark.parametrize("members", [1, 2, 7, 9, 16, 40, 1000])
def test_the_mean_of_sparse_vectors_never_takes_more_than_int4(members: int) -> None:
    bytes_ = CODECS["topk2-64"].for_mean(members).payload_bytes(4096)
    assert bytes_ <= CODECS["int4"].payload_bytes(4096)


@examples
@given(values=gradients())
def test_topk_keeps_the_largest_of_each_chunk(values: Floats) -> None:
    kept = passed_through(values, CODECS["topk2-64"]) != 0
    for start in range(0, values.size, 4096):
        chosen = kept[start : start + 4096]
        assert chosen.sum() <= 64
        magnitudes = np.abs(values[start : start + 4096])
        if chosen.any() and not chosen.all():
            assert magnitudes[~chosen].max() <= np.sort(magnitudes)[-64:].min() or chosen.sum() < 64


@every_codec
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2e30])
@pytest.mark.parametrize("place", [0, 300, 5000])
def test_values_that_cannot_be_averaged_are_not_encoded(codec: Codec, value: float, place: int) -> None:
    values = np.ones(5001, np.float32)
    values[place] = value
    with pytest.raises(CodecError, match="NaN, infinity or values beyond"):
        encoded(values, codec)


def test_fp16_refuses_what_it_would_make_infinite() -> None:
    with pytest.raises(CodecError, match=r"values beyond 7e\+04"):
        encoded(np.array([70_000], np.float32), CODECS["fp16"])


@every_codec
def test_the_largest_magnitudes_pass(codec: Codec) -> None:
    values = np.full(5000, codec.limit, np.float32)
    values[::2] *= -1
    assert np.all(np.abs(passed_through(values, codec)) <= MAGNITUDE_MAX)


def forged(codec: Codec, payload: bytes) -> None:
    """Decode what no encoder gave, its checksums in order."""
    elements = codec.grain
    room = np.frombuffer(payload[: codec.payload_bytes(elements)], np.uint8)
    codec.decode(room.reshape(1, -1), np.empty((1, elements), np.float32))


@pytest.mark.parametrize("scale", [0x7FC0, 0x7F80, 0xFF80, 0x7F00, 0x0001, 0x8000])
@pytest.mark.parametrize("name", ["int8", "int4"])
def test_absurd_scales_are_refused(name: str, scale: int) -> None:
    with pytest.raises(CodecError, match="holds a scale that is not 0 or between"):
        forged(CODECS[name], scale.to_bytes(2, "little") * 2000)


@pytest.mark.parametrize("payload", [b"\0" * 4096, b"\xff" * 4096, b"\0" * 4 + b"\xff" * 8 + b"\0" * 4096])
def test_absurd_places_are_refused(payload: bytes) -> None:
    with pytest.raises(CodecError):
        forged(CODECS["topk2-64"], payload)


@every_codec
@examples
@given(payload=st.binary(min_size=64, max_size=64), seed=seeds)
@example(payload=b"\x49\x71" * 32, seed=0)  # int8's largest scale
def test_whatever_lies_in_a_block_a_codec_refuses_it_or_gives_bounded_values(
    codec: Codec, payload: bytes, seed: int
) -> None:
    noise = np.random.default_rng(seed).bytes(codec.payload_bytes(codec.grain))
    values = np.empty((1, codec.grain), np.float32)
    room = np.frombuffer((payload + noise)[: len(noise)], np.uint8).reshape(1, -1)
    try:
        codec.decode(room, values)
    except CodecError:
        return
    # The plain codecs' values are judged by the process that decodes an object. No encoder writes int8's -128,
    # which is a 127th more than the scale; a decoder refuses it beyond the limit, too.
    most = MAGNITUDE_MAX * (128 / 127 if codec.name == "int8" else 1)
    assert codec.name in {"fp32", "bf16", "fp16"} or np.all(np.abs(values) <= most)


@every_codec
@examples
@given(values=gradients())
def test_dither_is_the_same_for_every_process(codec: Codec, values: Floats) -> None:
    assert bytes(encoded(values, codec, dither=True)) == bytes(encoded(values.copy(), codec, dither=True))


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_dither_passes_on_average_what_rounding_drops(name: str) -> None:
    values = np.full(64 * 1024, 0.001, np.float32)
    values[::64] = 1.0
    small = values == values[1]
    means = []
    for round_ in range(200):
        body = encode(keys.reduced(round_, 0, 0), values, lambda _: Header(), Encoding(CODECS[name], dither=True))
        blocks = Blocks(values.size, CODECS[name])
        key = keys.reduced(round_, 0, 0)
        means.append(decode_blocks(key, body[HEADER_BYTES:], blocks, range(blocks.number))[small].mean())
    assert np.mean(means) == pytest.approx(0.001, rel=0.05)
    assert np.all(passed_through(values, CODECS[name])[small] == 0)


def test_dither_has_numbers_for_a_whole_piece() -> None:
    assert PIECE_ELEMENTS <= Dither.PERIOD >= BLOCK_ELEMENTS_MAX
    for block in range(50):
        offsets = Dither(7, block).offsets(Dither.PERIOD)
        assert offsets.size == Dither.PERIOD
        assert np.abs(offsets).max() < 0.5
        assert abs(offsets.mean()) < 0.01


@pytest.mark.parametrize("name", NAMES)
@examples
@given(seed=seeds, count=st.integers(1, 5000), rounds=st.integers(1, 8))
def test_the_residual_of_error_feedback_is_exactly_what_did_not_arrive(
    name: str, seed: int, count: int, rounds: int
) -> None:
    codec, rng = CODECS[name], np.random.default_rng(seed)
    feedback = ErrorFeedback(count)
    given_, arrived = np.zeros(count), np.zeros(count)
    for _ in range(rounds):
        gradient = rng.standard_normal(count).astype(np.float32)
        residual = feedback.of(slice(0, count))
        residual += gradient
        before = residual.copy()
        got = decoded(encoded(residual, codec, error=residual), count, codec)
        assert np.array_equal(residual, before - got)
        given_ += gradient
        arrived += got
    assert np.allclose(arrived + feedback.residual, given_, rtol=0, atol=rounds * 4e-6)


def test_each_part_has_its_own_residual() -> None:
    feedback = ErrorFeedback(6)
    feedback.of(slice(2, 4))[...] = 0.5
    assert feedback.residual.tolist() == [0, 0, 0.5, 0.5, 0, 0]


@pytest.mark.parametrize("members", [1, 4])
@pytest.mark.parametrize("name", LOSING)
def test_a_quadratic_converges_as_without_a_codec(name: str, members: int) -> None:
    """Members pull towards different targets; the mean of the targets is where fp32 ends."""
    count, rng = 4096, np.random.default_rng(3)
    # Some coordinates move a thousand times less than their neighbours: rounded to the nearest, they would never move.
    scale = 10.0 ** rng.uniform(-3, 0, count)
    targets = (scale * rng.standard_normal((members, count))).astype(np.float32)
    codec, mean_codec = CODECS[name], CODECS[name].for_mean(members)
    blocks = Blocks(count, mean_codec)
    feedbacks = [ErrorFeedback(count) for _ in range(members)]
    parameters, tail, rounds = np.zeros(count, np.float32), np.zeros(count), 800
    for round_ in range(rounds):
        rate = 0.1 if round_ < rounds // 2 else 0.02
        mean = np.zeros(count, np.float32)
        for target, feedback in zip(targets, feedbacks, strict=True):
            residual = feedback.residual
            residual += np.float32(rate) * (parameters - target)
            mean += decoded(encoded(residual, codec, error=residual), count, codec) / np.float32(members)
        key = keys.reduced(round_, 0, 0)
        body = encode(key, mean, lambda _: Header(), Encoding(mean_codec, dither=True))
        parameters -= decode_blocks(key, body[HEADER_BYTES:], blocks, range(blocks.number))
        if round_ >= rounds - 200:
            tail += parameters / 200
    goal = targets.mean(axis=0)
    # A place that is kept every 64th round at most moves late, for each member at its own time.
    assert np.linalg.norm(tail - goal) < (0.1 if name.startswith("topk") else 0.03) * np.linalg.norm(goal)


@pytest.mark.parametrize("name", ["", "int5", "topk2", "topk2-8", "topk2-100", "topk2-1024", "fp32/1"])
def test_an_unknown_codec_is_refused_with_the_list_of_all(name: str) -> None:
    with pytest.raises(ValueError, match=r"codec is .*; allowed: fp32, bf16, fp16, int8, int4, and topk2-K"):
        codec_named(name)


@every_codec
def test_a_record_stays_aligned(codec: Codec) -> None:
    for count in (1, 4096, 10**6, 10**9):
        assert (Blocks(count, codec).record_bytes - CHECKSUM_BYTES) % 4 == 0
        assert Blocks(count, codec).elements % codec.grain == 0


def test_int4_takes_at_most_an_eighth_and_its_scales() -> None:
    assert object_bytes(10**8, CODECS["int4"]) <= 0.134 * object_bytes(10**8)
