"""The byte format of every binary object of the rendezvous.

| offset | bytes | what |
|---|---|---|
| 0 | 8 | magic |
| 8 | 2 | format version, little-endian like all that follows |
| 10 | 2 | length of the header |
| 12 | 4 | CRC-32 of the header |
| 16 | up to 4080 | header: canonical JSON, then zeros up to offset 4096 |
| 4096 | records | each a checksum (4 bytes) and one encoded block; the last block is padded with zeros |

A record's checksum is the lower half of XXH3-64 of the encoded block. Its seed is the CRC-32 of the object's key (upper
half) and the block's index: a block verifies only at its own place in its own object, and a reader can verify any run
of records without the rest.
XXH3 runs at 10 GB/s, zlib's CRC-32 at 2 to 4, and every byte is checked when it is written and again when it is read.
The checksums guard against damage, not against forgery (IAM does that).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from xxhash import xxh3_64_intdigest

from muster.contract.document import StoredDocument
from muster.contract.errors import DocumentError
from muster.replica.codecs import FP32
from muster.replica.codecs.base import (
    MAGNITUDE_MAX,
    Codec,
    CodecError,
    Dither,
    Floats,
    Payload,
    refuse_unusable,
    unusable,
)
from muster.replica.codecs.grouped import SHARES
from muster.replica.kernel import Kernel, kernel
from muster.replica.kernel.calls import PAYLOAD_BYTES_MIN, Destination, Rows, Source
from muster.replica.wire.blocks import CHECKSUM_BYTES, Blocks

__all__ = [
    "HEADER_BYTES",
    "HEADER_TEXT_BYTES_MAX",
    "PLAIN",
    "CodecError",
    "Encoding",
    "Floats",
    "Records",
    "byte_range",
    "checksums_digest",
    "decode_header",
    "decoded",
    "encode",
    "encode_into",
    "encode_records",
    "encoded_pieces",
    "object_bytes",
    "put_header",
    "put_values",
    "state_checksums",
]

H = TypeVar("H", bound=StoredDocument)

MAGIC = b"\x93MUSTER\n"
VERSION = 1
HEADER_BYTES = 4096  # reserved for the header, prefix included; the records follow

_PREFIX = struct.Struct("<8sHHI")
HEADER_TEXT_BYTES_MAX = HEADER_BYTES - _PREFIX.size
_CHECKSUM_DTYPE = np.dtype("<u4")


@dataclass(frozen=True)
class Encoding:
    """How values are encoded.

    Attributes:
        codec: encodes the blocks.
        dither: round at random, by numbers that follow from the key alone (see `Dither`).
        added: is added to the values first.
        error: receives the codec's error, what was encoded minus decoded values; may be the array of the values itself
            or `added`.
        decoded: receives the decoded values; may be the array of the values itself or `added`, if `error` is another.
        room: allocates the object's memory, given its size; None: new memory.
    """

    codec: Codec = FP32
    dither: bool = False
    added: Floats | None = None
    error: Floats | None = None
    decoded: Floats | None = None
    room: Callable[[int], Payload] | None = None


PLAIN = Encoding()
"""Float32, in new memory."""


@dataclass(frozen=True)
class Records:
    """The records of the blocks `which` of the object `key`, whose values are cut into `blocks`.

    Their bytes do not depend on which of them are encoded together, nor on the object that holds them.
    """

    key: str
    blocks: Blocks
    which: range


def encode(
    key: str, values: Floats | None, header_of: Callable[[str], StoredDocument], encoding: Encoding = PLAIN
) -> memoryview:
    """An object ready to be stored under `key`.

    Args:
        key: where the object will be stored; its checksums are bound to it.
        values: flat float32 values, or None for an object that is a header alone.
        header_of: makes the header, given the CRC-32 of all block checksums as eight hexadecimal digits.

    Raises:
        CodecError: values that are NaN, infinite or beyond the codec's limit, or a header that does not fit.
    """
    given = np.empty(0, np.float32) if values is None else values
    blocks = Blocks(given.size, encoding.codec)
    body, checksums = encode_records(Records(key, blocks, range(blocks.number)), given, encoding)
    put_header(body, header_of(checksums_digest([checksums])))
    return body


def encode_records(records: Records, values: Floats, encoding: Encoding) -> tuple[memoryview, bytes]:
    """The bytes of `records`, behind room for a header; and their checksums, 4 bytes each.

    Raises:
        CodecError: values that are NaN, infinite or beyond the codec's limit.
    """
    blocks, which = records.blocks, records.which
    size = HEADER_BYTES + len(which) * blocks.record_bytes
    # Not a bytearray, which the system fills with zeros page by page: that alone would take as long as coding.
    body = np.empty(size, np.uint8) if encoding.room is None else encoding.room(size)
    body[:HEADER_BYTES] = 0
    rows = _records(body[HEADER_BYTES:].data, blocks)
    _encode_rows(records, values, encoding, rows)
    return body.data, np.ascontiguousarray(rows[:, :CHECKSUM_BYTES]).tobytes()


def encode_into(body: memoryview, records: Records, values: Floats, encoding: Encoding) -> None:
    """Write the bytes of `records` into `body`, which has exactly their size; raises as `encode_records`."""
    _encode_rows(records, values, encoding, _records(body, records.blocks))


def _encode_rows(records: Records, values: Floats, encoding: Encoding, rows: Payload) -> None:
    start, blocks = records.which.start, records.blocks
    # In one call; a dither is that of its piece.
    at_once = compiled_rows(records.key, blocks, range(1), rows) and (encoding.codec.elementwise or not encoding.dither)
    for piece in (blocks.alike if at_once else blocks.pieces)(records.which):
        _encode_piece(records, values, encoding, piece, rows[piece.start - start : piece.stop - start])


def encoded_pieces(records: Records, values: Floats, encoding: Encoding) -> Iterator[tuple[memoryview, bytes]]:
    """The bytes of `records` piece by piece, in order, each with its checksums; raises as `encode_records`.

    Each piece is in new memory.
    """
    for piece in records.blocks.pieces(records.which):
        rows = np.empty((len(piece), records.blocks.record_bytes), np.uint8)
        _encode_piece(records, values, encoding, piece, rows)
        yield rows.reshape(-1).data, np.ascontiguousarray(rows[:, :CHECKSUM_BYTES]).tobytes()


def _encode_piece(records: Records, values: Floats, encoding: Encoding, piece: range, rows: Payload) -> None:
    """Encode the blocks `piece` into `rows`, one record each. `values` are those of all `records`."""
    blocks, seed = records.blocks, _seed(records.key)
    payload = rows[:, CHECKSUM_BYTES:]
    offset = blocks.span(records.which).start
    span = blocks.span(piece)
    span = slice(span.start - offset, span.stop - offset)
    codec, elements = blocks.kind(piece)
    dither = Dither(seed, piece.start) if encoding.dither and not codec.elementwise else None
    source = values[span]
    added, error, kept = (
        None if room is None else room[span] for room in (encoding.added, encoding.error, encoding.decoded)
    )
    if not source.size % elements and (compiled := compiled_rows(records.key, blocks, piece, rows)):
        library, target = compiled
        random = None if dither is None else (dither.offsets(source.size), dither.bytes(source.size), SHARES)
        if not library.encode(target, Source(source, added, random), codec.limit, error=error, decoded=kept):
            raise unusable(codec.limit)
        return
    if added is not None:
        source = source + added
    full = source
    if source.size % elements:
        full = np.zeros(len(piece) * elements, np.float32)
        full[: source.size] = source
    full = full.reshape(len(piece), -1)
    codec.encode(full, payload, dither)
    if error is not None or kept is not None:
        found = np.empty_like(full)
        codec.decode(payload, found)
        decoded = found.reshape(-1)[: source.size]
        if error is not None:
            np.subtract(source, decoded, out=error)
        if kept is not None:
            kept[...] = decoded
    checksums = [_checksum(seed, index, record) for index, record in zip(piece, rows, strict=True)]
    rows[:, :CHECKSUM_BYTES] = np.array(checksums, _CHECKSUM_DTYPE).view(np.uint8).reshape(-1, CHECKSUM_BYTES)


def checksums_digest(checksums: Sequence[bytes]) -> str:
    """The CRC-32 of all blocks' checksums in order, as eight hexadecimal digits."""
    return f"{zlib.crc32(b''.join(checksums)):08x}"


def state_checksums(values: Floats, blocks: Blocks, which: range) -> bytes:
    """Checksums of `values`, those of the blocks `which`, 4 bytes each: independent of where they are stored."""
    offset = blocks.span(which).start
    spans = (blocks.span(range(block, block + 1)) for block in which)
    found = [xxh3_64_intdigest(values[s.start - offset : s.stop - offset].data) & 0xFFFF_FFFF for s in spans]
    return np.array(found, _CHECKSUM_DTYPE).tobytes()


def put_header(body: memoryview, header: StoredDocument) -> None:
    """Write the header of an object into the room before its records.

    Raises:
        CodecError: it does not fit.
    """
    text = header.to_json()
    if len(text) > HEADER_TEXT_BYTES_MAX:
        message = f"the header has {len(text)} bytes, at most {HEADER_TEXT_BYTES_MAX} fit"
        raise CodecError(message)
    _PREFIX.pack_into(body, 0, MAGIC, VERSION, len(text), zlib.crc32(text))
    body[_PREFIX.size : _PREFIX.size + len(text)] = text


def decode_header(key: str, body: memoryview, kind: type[H]) -> H:
    """The header from the first bytes of an object (HEADER_BYTES of them, or what there is).

    Raises:
        CodecError: truncated, foreign, of another version, damaged, or with values out of bounds.
    """
    if len(body) < HEADER_BYTES:
        message = f"it has {len(body)} bytes, a header takes {HEADER_BYTES}"
        raise CodecError(message)
    magic, version, length, checksum = _PREFIX.unpack_from(body)
    if magic != MAGIC:
        message = "it does not start with Muster's magic"
        raise CodecError(message)
    if version != VERSION:
        message = f"its format version is {version}, only {VERSION} is supported"
        raise CodecError(message)
    if length > HEADER_BYTES - _PREFIX.size:
        message = f"its header has {length} bytes, at most {HEADER_BYTES - _PREFIX.size} fit"
        raise CodecError(message)
    header = bytes(body[_PREFIX.size : _PREFIX.size + length])
    if zlib.crc32(header) != checksum:
        message = "the header's checksum does not match"
        raise CodecError(message)
    try:
        return kind.from_json(header, key)
    except DocumentError as error:
        raise CodecError(str(error)) from None


def object_bytes(count: int, codec: Codec = FP32, exact: int = 0) -> int:
    """The size of an object that carries `count` values, the last `exact` of them in float32."""
    blocks = Blocks(count, codec, exact)
    return HEADER_BYTES + blocks.number * blocks.record_bytes


def byte_range(blocks: Blocks, which: range) -> tuple[int, int]:
    """Where the records of `which` lie in an object: first byte, and one past the last."""
    return (
        HEADER_BYTES + which.start * blocks.record_bytes,
        HEADER_BYTES + which.stop * blocks.record_bytes,
    )


def put_decoded(target: Destination, key: str, body: memoryview, blocks: Blocks, piece: range) -> bool:
    """The values of `decoded` into `target`; whether the compiled kernel has done it.

    If it has not, `target` is as it was: there is no kernel, or something is wrong, and `decoded` says what.
    """
    if len(body) != len(piece) * blocks.record_bytes:
        return False
    compiled = compiled_rows(key, blocks, piece, _records(body, blocks))
    return compiled is not None and compiled[0].decode(compiled[1], target.place.size, MAGNITUDE_MAX, target)


def decoded(key: str, body: memoryview, blocks: Blocks, piece: range, room: Floats) -> Floats:
    """The values of one piece of blocks, from exactly their records.

    Args:
        room: for `blocks.piece_elements` values.

    Returns:
        The values in one row, or each block's in a row of its own; in `room`, or as they lie in `body`: they are only
        to be read.

    Raises:
        CodecError: wrong length, wrong checksum, bytes that the codec never writes, or values that are NaN, infinite
            or beyond MAGNITUDE_MAX.
    """
    _check_length(body, blocks, piece)
    records = _records(body, blocks)
    span = blocks.span(piece)
    count = span.stop - span.start
    codec, elements = blocks.kind(piece)
    full = room[: len(piece) * elements].reshape(len(piece), -1)
    if (compiled := compiled_rows(key, blocks, piece, records)) is not None:
        # float32 is only verified: it is used where it lies.
        target = room[:count] if codec.loses else None
        if compiled[0].decode(compiled[1], count, MAGNITUDE_MAX, None if target is None else Destination(target)):
            return _trimmed(codec.values(records[:, CHECKSUM_BYTES:], full), count) if target is None else target
    found = np.ascontiguousarray(records[:, :CHECKSUM_BYTES]).view(_CHECKSUM_DTYPE)[:, 0].tolist()
    start = _seed(key) << 32
    for row, index in enumerate(piece):
        if xxh3_64_intdigest(records[row, CHECKSUM_BYTES:].data, start | index) & 0xFFFF_FFFF != found[row]:
            message = f"the checksum of block {index} does not match"
            raise CodecError(message)
    values = _trimmed(codec.values(records[:, CHECKSUM_BYTES:], full), count)
    refuse_unusable(values, MAGNITUDE_MAX)
    return values


def compiled_rows(key: str, blocks: Blocks, piece: range, rows: Payload) -> tuple[Kernel, Rows] | None:
    """The compiled kernel, and the records of `piece` in `rows` as it takes them; None where NumPy must do it."""
    codec, elements = blocks.kind(piece)
    if codec.kernel_format is None or blocks.record_bytes - CHECKSUM_BYTES < PAYLOAD_BYTES_MIN:
        return None
    if elements % codec.grain or (compiled := kernel()) is None:  # a block of float32 in the place of a coded one
        return None
    return compiled, Rows(codec.kernel_format, rows, elements, _seed(key) << 32 | piece.start)


def _trimmed(values: Floats, count: int) -> Floats:
    """The first `count` values."""
    return values.reshape(-1)[:count] if count < values.size else values


def put_values(target: Floats, values: Floats, within: slice | None = None) -> None:
    """Copy values that are in one row, or each block's in a row of its own, into `target`: those `within`, or all."""
    if values.ndim == 1:
        target[...] = values if within is None else values[within]
    elif within is None or within == slice(0, values.size):
        target.reshape(values.shape)[...] = values
    else:
        target[...] = values.reshape(-1)[within]


def _check_length(body: memoryview, blocks: Blocks, which: range) -> None:
    if len(body) != len(which) * blocks.record_bytes:
        message = f"it has {len(body)} bytes, blocks {which.start} to {which.stop - 1} take {len(which)} records"
        raise CodecError(message)


def _records(body: memoryview, blocks: Blocks) -> Payload:
    return np.frombuffer(body, np.uint8).reshape(-1, blocks.record_bytes)


def _seed(key: str) -> int:
    return zlib.crc32(key.encode())


def _checksum(seed: int, index: int, record: Payload) -> int:
    return xxh3_64_intdigest(record[CHECKSUM_BYTES:].data, seed << 32 | index) & 0xFFFF_FFFF
