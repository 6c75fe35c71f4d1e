"""The compiled kernel makes the same bits as NumPy, whatever the values are."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from muster.infra.places import PACKAGE
from muster.infra.release.kernels import FOLDER
from muster.infra.release.kernels import compiled as compile_kernel
from muster.replica.algorithms.outer_optimizer import Nesterov
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import MAGNITUDE_MAX, Codec, Payload
from muster.replica.codecs.grouped import _NEAREST, LEVELS
from muster.replica.kernel import Format, Kernel, kernel
from muster.replica.kernel.calls import Rows, Target
from muster.replica.kernel.library import MACHINES, SOURCE, library_name
from muster.replica.wire import keys
from muster.replica.wire.binary_format import (
    CodecError,
    Encoding,
    Floats,
    Records,
    _seed,
    decode_into,
    decoded,
    encode_into,
)
from muster.replica.wire.blocks import CHECKSUM_BYTES, Blocks
from muster.replica.wire.compiled_records import compiled_records
from muster.replica.wire.weighted_sum import WeightedSum
from tests.support.kernels import RemoteLibrary, using
from tests.support.source_patch import ROOT

KEY = keys.contribution(7, 1, 3)
CODECS = {name: codec_named(name) for name in ("fp32", "bf16", "fp16", "int8", "int4")}
EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
ZIG = ROOT / "build" / "zig" / "bin" / "python-zig"
# `make test` installs what the second one needs, `make unit` does without.
PLACES = ["this machine", *(["arm64"] if EMULATOR is not None and ZIG.exists() else [])]
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())
examples = settings(max_examples=60)
seeds = st.integers(0, 2**32 - 1)


def arm64(folder: Path) -> RemoteLibrary:
    """The kernel for arm64, in a program that an emulator of that processor runs."""
    assert EMULATOR is not None
    program = folder / "driver"
    sources = [ROOT / "muster/replica/kernel/kernel.c", ROOT / "tests/support/kernel_driver.c"]
    options = ["-target", "aarch64-linux-musl", "-static", "-std=c11", "-O3", "-ffp-contract=off"]
    cache = {name: str(ROOT / "build/zig-cache") for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    subprocess.run([ZIG, "cc", *options, "-o", program, *sources], check=True, env=cache)
    return RemoteLibrary([EMULATOR, program])


@pytest.fixture(scope="module", params=PLACES)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    if request.param == "arm64":
        library = arm64(tmp_path_factory.mktemp("arm64"))
        yield Kernel(library)  # type: ignore[arg-type] # has the functions of one
        library.close()
    elif shutil.which("cc") is None or platform.machine() not in MACHINES:
        pytest.skip("needs a C compiler, and a machine that the kernel is for")
    else:
        # What this tree's source makes, whichever library lies beside it.
        library = tmp_path_factory.mktemp("native") / library_name(platform.machine())
        compile_kernel(["cc"], platform.machine(), PACKAGE / FOLDER / SOURCE, library)
        yield Kernel(ctypes.CDLL(str(library)))


@st.composite
def any_values(draw: st.DrawFn) -> Floats:
    """Values of all kinds: ordinary ones, and any bits: NaN, infinities, subnormals, both zeros, the limits."""
    count = draw(st.integers(1, 5000))
    rng = np.random.default_rng(draw(seeds))
    values = rng.standard_normal(count).astype(np.float32)
    values *= np.float32(10.0) ** rng.integers(-30, 4, (count + 199) // 200).repeat(200)[:count].astype(np.float32)
    kind = draw(st.sampled_from(["plain", "bf16", "sparse", "one sign", "special", "bits", "equal"]))
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
    body = np.zeros(blocks.number * blocks.record_bytes, np.uint8)
    try:
        encoding = Encoding(codec, dither=dither, added=added, error=error, decoded=kept)
        encode_into(body.data, Records(KEY, blocks, range(blocks.number)), given, encoding)
    except CodecError as wrong:
        return (str(wrong),)
    return tuple(b"" if array is None else array.tobytes() for array in (body, error, kept, given))


MODES = ["alone", "error", "error in place", "decoded", "decoded in place", "both", "residual"]


@every_codec
@examples
@given(values=any_values(), mode=st.sampled_from(MODES), dither=st.booleans())
@example(values=np.zeros(1, np.float32), mode="both", dither=False)
@example(values=np.full(16_384, -0.0, np.float32), mode="both", dither=True)
def test_encoding_makes_the_same_bits(compiled: Kernel, codec: Codec, values: Floats, mode: str, dither: bool) -> None:
    with using(None):
        expected = encoded(values, codec, mode, dither=dither)
    with using(compiled):
        assert encoded(values, codec, mode, dither=dither) == expected


def stored(payload: np.ndarray, codec: Codec, count: int) -> np.ndarray:
    """The records of any bytes, with the checksums that belong to them."""
    blocks = Blocks(count, codec)
    rows = np.empty((blocks.number, blocks.record_bytes), np.uint8)
    rows[:, CHECKSUM_BYTES:] = np.resize(payload, (blocks.number, blocks.record_bytes - CHECKSUM_BYTES))
    for index, row in enumerate(rows):
        found = xxh3_64_intdigest(row[CHECKSUM_BYTES:].tobytes(), _seed(KEY) << 32 | index) & 0xFFFF_FFFF
        row[:CHECKSUM_BYTES] = np.array([found], "<u4").view(np.uint8)
    return rows


@st.composite
def any_records(draw: st.DrawFn, codec: Codec) -> tuple[int, np.ndarray]:
    """Records as an encoder writes them, or with bytes that none writes; perhaps damaged."""
    count = draw(st.integers(500, 40_000))
    rng = np.random.default_rng(draw(seeds))
    blocks = Blocks(count, codec)
    size = blocks.record_bytes - CHECKSUM_BYTES
    kind = draw(st.sampled_from(["encoded", "encoded", "noise", "large", "damaged"]))
    values = rng.standard_normal(count).astype(np.float32)
    body = np.empty(blocks.number * blocks.record_bytes, np.uint8)
    with using(None):
        encode_into(body.data, Records(KEY, blocks, range(blocks.number)), values, Encoding(codec))
    rows = body.reshape(blocks.number, -1)
    if kind in {"noise", "large"}:
        payload = rows[0, CHECKSUM_BYTES:].copy()
        where = rng.integers(0, size // 2, draw(st.integers(1, 20)))
        # Scales, or plain values, near their limits; and everything else.
        noise = rng.integers(0x7130, 0x7160, where.size) if kind == "large" else rng.integers(0, 2**16, where.size)
        payload.view(np.uint16)[where] = noise
        return count, stored(payload, codec, count)
    if kind == "damaged":
        rows.reshape(-1)[rng.integers(0, rows.size)] ^= np.uint8(1 << draw(st.integers(0, 7)))
    return count, rows


def read(count: int, rows: np.ndarray, codec: Codec, *, whole: bool) -> bytes | str:
    """What is decoded, or what is wrong with it."""
    blocks = Blocks(count, codec)
    body = unaligned(rows.reshape(-1).view(np.float32)).view(np.uint8).data
    values = np.full(count, np.float32(5))
    try:
        if whole:
            decode_into(values, KEY, body, blocks, range(blocks.number))
            return values.tobytes()
        room = np.empty(blocks.piece_elements, np.float32)
        found = []
        for piece in blocks.pieces(range(blocks.number)):
            records = body[piece.start * blocks.record_bytes : piece.stop * blocks.record_bytes]
            found.append(decoded(KEY, records, blocks, piece, room).tobytes())
        return b"".join(found)
    except CodecError as wrong:
        return str(wrong)


@every_codec
@examples
@given(data=st.data(), whole=st.booleans())
def test_decoding_makes_the_same_bits_and_refuses_the_same_bytes(
    compiled: Kernel, codec: Codec, data: st.DataObject, whole: bool
) -> None:
    count, rows = data.draw(any_records(codec))
    with using(None):
        expected = read(count, rows, codec, whole=whole)
    with using(compiled):
        assert read(count, rows, codec, whole=whole) == expected


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


@every_codec
@examples
@given(data=st.data(), members=st.integers(1, 4), own=st.integers(0, 3))
def test_sums_have_the_same_bits_and_leave_out_the_same_members(
    compiled: Kernel, codec: Codec, data: st.DataObject, members: int, own: int
) -> None:
    count = data.draw(st.integers(500, 40_000))
    rng = np.random.default_rng(data.draw(seeds))
    blocks = Blocks(count, codec)
    terms: list[tuple[np.ndarray, float]] = [(rng.standard_normal(count).astype(np.float32), 1.0)]
    for _ in range(members):
        body = np.empty(blocks.number * blocks.record_bytes, np.uint8)
        values = rng.standard_normal(count).astype(np.float32)
        with using(None):
            encode_into(body.data, Records(KEY, blocks, range(blocks.number)), values, Encoding(codec))
        if data.draw(st.integers(0, 3)) == 0:
            body[rng.integers(0, body.size)] ^= 1
        terms.append((body.reshape(blocks.number, -1), data.draw(st.sampled_from([1.0, 0.75, 1.7]))))
    order = [terms[0], *terms[1:]]
    if own:
        order = [*terms[1 : 1 + own], terms[0], *terms[1 + own :]]
        order.insert(0, (terms[0][0] * np.float32(2), 1.25))
    with using(None):
        expected = total(order, count, codec)
    with using(compiled):
        assert total(order, count, codec) == expected


@examples
@given(seed=seeds, count=st.integers(1, 5000), eta=st.floats(0, 2), mu=st.floats(0, 1))
def test_an_outer_step_has_the_same_bits(compiled: Kernel, seed: int, count: int, eta: float, mu: float) -> None:
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


@pytest.mark.parametrize("number", range(-127, 128))
def test_every_whole_number_gets_the_nearest_level_of_int4(compiled: Kernel, number: int) -> None:
    codec = CODECS["int4"]
    values = np.full(1024, number, np.float32)
    values[::64] = 127
    blocks = Blocks(values.size, codec)
    found = np.empty(blocks.number * blocks.record_bytes, np.uint8)
    kept = np.empty_like(values)
    with using(compiled):
        encode_into(found.data, Records(KEY, blocks, range(1)), values, Encoding(codec, decoded=kept))
    scale = np.float32(127)
    assert kept[1] == np.float32(LEVELS[_NEAREST[np.int8(number).view(np.uint8)]]) * (scale / np.float32(127))


@pytest.mark.parametrize("name", ["int8", "int4"])
def test_each_piece_of_blocks_has_its_own_random_numbers(compiled: Kernel, name: str) -> None:
    values = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)
    with using(None):
        expected = encoded(values, CODECS[name], "decoded", dither=True)
    with using(compiled):
        assert encoded(values, CODECS[name], "decoded", dither=True) == expected


def test_memory_of_other_sizes_is_refused(compiled: Kernel) -> None:
    rows = Rows(Format.FP32, np.empty((2, 4 + 4 * 256), np.uint8), 256, 0)
    values, limit = np.zeros(512, np.float32), np.float32(1)
    assert compiled.encode(rows, values, limit)
    for wrong in (values[:511], np.zeros(1024, np.float32)):
        with pytest.raises(ValueError, match="do not fit"):
            compiled.encode(rows, values, limit, error=wrong)
        with pytest.raises(ValueError, match="do not fit"):
            compiled.decode(rows, 512, limit, Target(wrong))
    with pytest.raises(ValueError, match="contiguous"):
        compiled.decode(rows, 512, limit, Target(np.zeros(1024, np.float32)[::2]))


def test_threads_can_call_it_together(compiled: Kernel) -> None:
    """Each has its own arrays; the kernel keeps nothing."""
    codec = CODECS["int4"]
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal(80_000).astype(np.float32) for _ in range(8)]
    with using(compiled):
        expected = [encoded(part, codec, "both", dither=True) for part in parts]
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda part: encoded(part, codec, "both", dither=True), parts * 4))
    assert found == expected * 4


@every_codec
def test_the_kernel_has_every_block_but_the_smallest(codec: Codec) -> None:
    assert kernel() is not None or not list((ROOT / "muster/replica/kernel").glob("*.so"))
    if kernel() is not None:
        assert compiled_records(KEY, Blocks(1024, codec)) is not None
    # XXH3 is another function for up to 240 bytes.
    assert (compiled_records(KEY, Blocks(256, CODECS["int4"]))) is None


def test_a_codec_with_code_of_its_own_is_not_the_kernels() -> None:
    class Negated(type(CODECS["fp32"])):  # type: ignore[misc] # the class of a codec
        def decode(self, payload: Payload, values: Floats) -> None:
            super().decode(payload, values)
            np.negative(values, out=values)

    class Renamed(type(CODECS["int4"])):  # type: ignore[misc] # the class of a codec
        name = "other"

    assert compiled_records(KEY, Blocks(1024, Negated())) is None
    assert Renamed.kernel_format is Format.INT4


def test_values_up_to_the_limit_are_within_what_readers_accept(compiled: Kernel) -> None:
    for codec in CODECS.values():
        values = np.tile(np.array([1, -1], np.float32) * codec.limit, 512)
        blocks = Blocks(values.size, codec)
        body = np.empty(blocks.number * blocks.record_bytes, np.uint8)
        found = np.empty_like(values)
        with using(compiled):
            encode_into(body.data, Records(KEY, blocks, range(blocks.number)), values, Encoding(codec))
            decode_into(found, KEY, body.data, blocks, range(blocks.number))
        assert np.abs(found).max() <= MAGNITUDE_MAX


def test_levels_and_the_middles_between_them_are_in_order() -> None:
    nearest = [_NEAREST[np.int8(number).view(np.uint8)] for number in range(-128, 128)]
    assert all(one <= other for one, other in pairwise(nearest))
