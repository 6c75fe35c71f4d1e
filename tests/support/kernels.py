"""The compiled kernel of the tests, and what it must have in common with NumPy, whatever the values are."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from muster.replica.algorithms import outer_optimizer
from muster.replica.algorithms.outer_optimizer import Nesterov
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import Codec
from muster.replica.codecs.grouped import LEVELS
from muster.replica.kernel import Kernel
from muster.replica.wire import binary_format, rendezvous_keys, weighted_sum
from muster.replica.wire.binary_format import (
    CodecError,
    Encoding,
    Floats,
    Records,
    _seed,
    decoded,
    encode_into,
)
from muster.replica.wire.blocks import CHECKSUM_BYTES, Blocks
from muster.replica.wire.weighted_sum import WeightedSum

KEY = rendezvous_keys.contribution(7, 1, 3)
CODECS = {name: codec_named(name) for name in ("fp32", "bf16", "fp16", "int8", "int4", "topk2-64", "topk2-512")}
CODECS["topk8-192"] = CODECS["topk2-64"].for_mean(3)

_USERS = (outer_optimizer, binary_format, weighted_sum)


@contextmanager
def using(kernel: Kernel | None) -> Iterator[None]:
    """This kernel meanwhile; None: NumPy alone."""
    with pytest.MonkeyPatch.context() as patch:
        for module in _USERS:
            patch.setattr(module, "kernel", lambda: kernel)
        yield


def with_other_digest(library: bytes, digest: str) -> bytes:
    """The library of another source, whose digest differs in its last digit."""
    other = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    assert library.count(digest.encode()) == 1
    return library.replace(digest.encode(), other.encode())


examples = settings(max_examples=60)
seeds = st.integers(0, 2**32 - 1)


@st.composite
def any_values(draw: st.DrawFn) -> Floats:
    """Values of all kinds: ordinary ones, and any bits: NaN, infinities, subnormals, both zeros, the limits.

    Some fill their blocks, also those of top-k, for which magnitudes are equal, or differ in their last bits.
    """
    count = draw(st.integers(1, 5000) | st.just(12_288))
    rng = np.random.default_rng(draw(seeds))
    values = rng.standard_normal(count).astype(np.float32)
    values *= np.float32(10.0) ** rng.integers(-30, 4, (count + 199) // 200).repeat(200)[:count].astype(np.float32)
    kind = draw(st.sampled_from(["plain", "bf16", "sparse", "one sign", "special", "bits", "equal", "near", "few"]))
    if kind == "bf16":
        values.view(np.uint32)[...] &= np.uint32(0xFFFF0000)
    elif kind == "sparse":
        values[rng.random(count) < 0.9] = draw(st.sampled_from([0.0, -0.0]))
    elif kind == "one sign":
        np.negative(np.abs(values), out=values)
    elif kind == "special":
        special = [np.nan, np.inf, -np.inf, 1e-45, -1e-40, -0.0, 1e30, -9.9e29, 9.95e29, 65504, 65505, 2.0**-100]
        where = rng.integers(0, count, draw(st.integers(1, 6)))
        values[where] = np.array(special, np.float32)[rng.integers(0, len(special), where.size)]
    elif kind == "bits":
        where = rng.integers(0, count, draw(st.integers(1, 300)))
        values.view(np.uint32)[where] = rng.integers(0, 2**32, where.size, np.uint32)
    elif kind == "equal":
        values[...] = values[0]
    elif kind == "near":
        values.view(np.uint32)[...] = np.uint32(0xBF80_0000) + rng.integers(0, 2**17, count, np.uint32)
    elif kind == "few":
        values[...] = draw(st.sampled_from([0, -1, 1e-31]))
        where = rng.integers(0, count, draw(st.integers(1, 3000)))
        values[where] = rng.choice(np.array([9.9e29, -9.9e29, 9.899e29, 1, 0], np.float32), where.size)
    return values


def unaligned(values: Floats) -> Floats:
    """The same, at an address that is a multiple of 4 bytes only."""
    room = np.empty(values.size + 16, np.float32)
    start = next(start for start in range(16) if room[start:].ctypes.data % 32 == 4)
    room[start : start + values.size] = values
    return room[start : start + values.size]


def encoded(values: Floats, codec: Codec, mode: str, *, dither: bool) -> tuple[bytes | str, ...]:
    """Everything that encoding has made, or what is wrong with the values."""
    given = unaligned(values)
    blocks = Blocks(given.size, codec)
    added = unaligned(given[::-1].copy()) if mode == "residual" else None
    error = {
        "error": np.zeros_like(given),
        "both": np.zeros_like(given),
        "error in place": given,
        "residual": added,
    }.get(mode)
    kept = {"both": given, "decoded in place": given, "residual": given, "decoded": np.zeros_like(given)}.get(mode)
    body = np.full(blocks.number * blocks.record_bytes, 0xFF, np.uint8)
    try:
        encoding = Encoding(codec, dither=dither, added=added, error=error, decoded=kept)
        encode_into(body.data, Records(KEY, blocks, range(blocks.number)), given, encoding)
    except CodecError as wrong:
        return (str(wrong),)
    return tuple(b"" if array is None else array.tobytes() for array in (body, error, kept, given))


def stored(payload: np.ndarray, codec: Codec, count: int) -> np.ndarray:
    """The records of any bytes, with the checksums that belong to them."""
    blocks = Blocks(count, codec)
    rows = np.empty((blocks.number, blocks.record_bytes), np.uint8)
    rows[:, CHECKSUM_BYTES:] = np.resize(payload, (blocks.number, blocks.record_bytes - CHECKSUM_BYTES))
    for index, row in enumerate(rows):
        found = xxh3_64_intdigest(row[CHECKSUM_BYTES:].tobytes(), _seed(KEY) << 32 | index) & 0xFFFF_FFFF
        row[:CHECKSUM_BYTES] = np.array([found], "<u4").view(np.uint8)
    return rows


@dataclass(frozen=True)
class AnyRecords:
    """Records as an encoder writes them, or with bytes that none writes; perhaps damaged."""

    count: int
    seed: int
    kind: str
    places: int
    bit: int

    def of(self, codec: Codec) -> np.ndarray:
        """The rows of bytes."""
        rng = np.random.default_rng(self.seed)
        blocks = Blocks(self.count, codec)
        rows = records(rng.standard_normal(self.count).astype(np.float32), codec)
        if self.kind == "zeros":
            return stored(np.zeros(1, np.uint8), codec, self.count)
        if self.kind in {"noise", "large"}:
            payload = rows[0, CHECKSUM_BYTES:].copy()
            # Scales, or plain values, near their limits; and everything else.
            size = blocks.record_bytes - CHECKSUM_BYTES
            end, *span = (16, 0x7130, 0x7160) if self.kind == "large" else (size, 0, 2**16)
            where = rng.integers(0, end // 2, self.places)
            payload.view(np.uint16)[where] = rng.integers(*span, where.size)
            return stored(payload, codec, self.count)
        if self.kind == "damaged":
            rows.reshape(-1)[rng.integers(0, rows.size)] ^= np.uint8(1 << self.bit)
        return rows


def records(values: Floats, codec: Codec) -> np.ndarray:
    """What NumPy encodes, as rows of bytes."""
    blocks = Blocks(values.size, codec)
    body = np.empty(blocks.number * blocks.record_bytes, np.uint8)
    with using(None):
        encode_into(body.data, Records(KEY, blocks, range(blocks.number)), values, Encoding(codec))
    return body.reshape(blocks.number, -1)


def read(count: int, rows: np.ndarray, codec: Codec) -> bytes | str:
    """What is decoded, or what is wrong with it."""
    blocks = Blocks(count, codec)
    body = unaligned(rows.reshape(-1).view(np.float32)).view(np.uint8).data
    try:
        room = np.empty(blocks.piece_elements, np.float32)
        found = []
        for piece in blocks.pieces(range(blocks.number)):
            records = body[piece.start * blocks.record_bytes : piece.stop * blocks.record_bytes]
            found.append(decoded(KEY, records, blocks, piece, room).tobytes())
        return b"".join(found)
    except CodecError as wrong:
        return str(wrong)


def total(terms: list[tuple[np.ndarray | Floats, float]], count: int, codec: Codec) -> tuple[bytes, list[str]]:
    """The weighted sum of records (rows of bytes) and values, and what is wrong with those that are not in it."""
    blocks = Blocks(count, codec)
    sums, room, wrong = np.empty(count, np.float32), np.empty(blocks.piece_elements, np.float32), []
    for number, run in enumerate(blocks.pieces(range(blocks.number))):
        span = blocks.span(run)
        found = WeightedSum(sums[span], room, held=False, factor=np.float32(1 / 3), terms=len(terms))
        for term, weight in terms:
            try:
                if term.dtype == np.float32:
                    found.add(term[span], np.float32(weight))
                else:
                    body = np.ascontiguousarray(term[run.start : run.stop]).reshape(-1).data
                    found.add_records(KEY, body, blocks, run, np.float32(weight))
            except CodecError as error:
                wrong.append(f"{number}: {error}")
        found.complete()
        again = WeightedSum(sums[span], room, held=True)
        again.add(terms[0][0][span], np.float32(0.5))
        again.complete()
    return sums.tobytes(), wrong


# The mean of 7 of top-k's largest values.
ROUNDED_ABOVE = np.repeat(np.array([9.9e29, 1], np.float32), (7, 4089))
MODES = ["alone", "error", "error in place", "decoded", "decoded in place", "both", "residual"]


@examples
@given(values=any_values(), mode=st.sampled_from(MODES), dither=st.booleans())
@example(values=np.zeros(1, np.float32), mode="both", dither=False)
@example(values=np.full(16_384, -0.0, np.float32), mode="both", dither=True)
@example(values=np.resize(ROUNDED_ABOVE, 12_288), mode="both", dither=False)
def same_when_encoding(compiled: Kernel, values: Floats, mode: str, dither: bool) -> None:
    """Blocks, what is kept and what is lost; or the same refusal."""
    for name, codec in CODECS.items():
        with using(None):
            expected = encoded(values, codec, mode, dither=dither)
        with using(compiled):
            assert encoded(values, codec, mode, dither=dither) == expected, name


@examples
@given(
    any_records=st.builds(
        AnyRecords,
        st.integers(500, 40_000),
        seeds,
        st.sampled_from(["encoded", "encoded", "noise", "large", "damaged", "zeros"]),
        st.integers(1, 20),
        st.integers(0, 7),
    ),
)
def same_when_decoding(compiled: Kernel, any_records: AnyRecords) -> None:
    """Values, or the same refusal of bytes."""
    for name, codec in CODECS.items():
        rows = any_records.of(codec)
        with using(None):
            expected = read(any_records.count, rows, codec)
        with using(compiled):
            assert read(any_records.count, rows, codec) == expected, name


Member = tuple[float, bool]
"""The weight of a member, and whether its bytes are damaged."""


@examples
@given(
    seed=seeds,
    count=st.integers(500, 40_000),
    members=st.lists(
        st.tuples(st.sampled_from([1.0, 0.75, 1.7]), st.sampled_from([True, *[False] * 3])), min_size=1, max_size=4
    ),
    own=st.integers(0, 3),
)
def same_when_adding(compiled: Kernel, seed: int, count: int, members: list[Member], own: int) -> None:
    """Weighted sums, which leave out the same members."""
    for name, codec in CODECS.items():
        rng = np.random.default_rng(seed)
        first: tuple[np.ndarray, float] = rng.standard_normal(count).astype(np.float32), 1.0
        others: list[tuple[np.ndarray, float]] = []
        for weight, is_damaged in members:
            rows = records(rng.standard_normal(count).astype(np.float32), codec)
            rows.reshape(-1)[rng.integers(0, rows.size)] ^= is_damaged
            others.append((rows, weight))
        order = [first, *others]
        if own:
            order = [(first[0] * np.float32(2), 1.25), *others[:own], first, *others[own:]]
        with using(None):
            expected = total(order, count, codec)
        with using(compiled):
            assert total(order, count, codec) == expected, name


@examples
@given(seed=seeds, count=st.integers(1, 5000), eta=st.floats(0, 2), mu=st.floats(0, 1))
def same_in_an_outer_step(compiled: Kernel, seed: int, count: int, eta: float, mu: float) -> None:
    """Parameters and momentum after a step."""
    rng = np.random.default_rng(seed)
    states = [
        unaligned((rng.standard_normal(count) * 10.0 ** rng.integers(-40, 30, count)).astype(np.float32))
        for _ in range(3)
    ]
    expected = [state.copy() for state in states]
    with using(None):
        Nesterov(eta, mu).step(*expected)
    with using(compiled):
        Nesterov(eta, mu).step(*states)
    assert [state.tobytes() for state in states] == [state.tobytes() for state in expected]


def nearest_levels_of_int4(compiled: Kernel) -> None:
    """Every whole number gets the nearest level."""
    codec = CODECS["int4"]
    values = np.resize(np.arange(-127, 128, dtype=np.float32), 1024)
    values[::64] = 127  # each group's scale
    blocks = Blocks(values.size, codec)
    body, kept = np.empty(blocks.number * blocks.record_bytes, np.uint8), np.empty_like(values)
    with using(compiled):
        encode_into(body.data, Records(KEY, blocks, range(1)), values, Encoding(codec, decoded=kept))
    assert set(values) == set(range(-127, 128))
    assert set(kept) <= set(LEVELS.tolist())
    nearest = np.abs(values[:, None] - LEVELS).min(axis=1)
    assert values[np.abs(values - kept) != nearest].tolist() == []


def own_random_numbers_of_each_piece(compiled: Kernel) -> None:
    """No two pieces of blocks are dithered alike."""
    values = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    for name in ("int8", "int4"):
        with using(None):
            expected = encoded(values, CODECS[name], "decoded", dither=True)
        with using(compiled):
            assert encoded(values, CODECS[name], "decoded", dither=True) == expected, name


CHECKS: tuple[Callable[[Kernel], None], ...] = (
    same_when_encoding,
    same_when_decoding,
    same_when_adding,
    same_in_an_outer_step,
    nearest_levels_of_int4,
    own_random_numbers_of_each_piece,
)
