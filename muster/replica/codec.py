"""The byte format of every binary object of the rendezvous.

| offset | bytes | what |
|---|---|---|
| 0 | 8 | magic |
| 8 | 2 | format version, little-endian like all that follows |
| 10 | 2 | length of the header |
| 12 | 4 | CRC-32 of the header |
| 16 | up to 4080 | header: canonical JSON, then zeros up to offset 4096 |
| 4096 | records | each a CRC-32 (4 bytes) and one block of float32 values; the last block is padded with zeros |

A record's CRC-32 starts from that of the object's key and the block's index, so a block verifies only in its own place
of its own object, and a reader of any run of records verifies them without the rest.
CRC-32 because zlib's runs at about 3 GB/s: it guards against damage, not against forgery (that is IAM's part).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from muster.contract.document import Document
from muster.contract.errors import DocumentError
from muster.replica.blocks import Blocks

Floats = NDArray[np.float32]
H = TypeVar("H", bound=Document)

MAGIC = b"\x93MUSTER\n"
VERSION = 1
HEADER_BYTES = 4096  # the header's room, prefix included; the records begin behind it
# Far above any gradient, far enough below float32's limit (3.4e38) that sums of thousands stay finite.
MAGNITUDE_MAX = np.float32(1e30)
_FLOAT_MAX = np.finfo(np.float32).max

_PREFIX = struct.Struct("<8sHHI")
_RECORD_DTYPE = np.dtype("<f4")
_CHECKSUM_DTYPE = np.dtype("<u4")


class CodecError(ValueError):
    """Bytes that are not such an object; says what is wrong with them."""


def encode(key: str, values: Floats | None, header_of: Callable[[str], Document]) -> bytearray:
    """An object ready to be stored under `key`.

    Args:
        key: where it will lie; its checksums are bound to it.
        values: flat float32 values, or None for an object that is a header alone.
        header_of: makes the header, given the CRC-32 over all block checksums as eight hexadecimal digits.
    """
    blocks = Blocks(0 if values is None else values.size)
    body = bytearray(HEADER_BYTES + blocks.number * blocks.record_bytes)
    checksums = np.zeros(blocks.number, _CHECKSUM_DTYPE)
    if values is not None:
        records = _records(memoryview(body)[HEADER_BYTES:], blocks)
        full, rest = divmod(values.size, blocks.elements)
        records[:full, 1:] = values[: full * blocks.elements].reshape(full, blocks.elements)
        records[full:, 1 : 1 + rest] = values[full * blocks.elements :]
        seed = _seed(key)
        for index, record in enumerate(records):
            checksums[index] = _checksum(seed, index, record)
        records[:, 0] = checksums.view(_RECORD_DTYPE)
    header = header_of(f"{zlib.crc32(checksums.tobytes()):08x}").to_json()
    if _PREFIX.size + len(header) > HEADER_BYTES:
        message = f"the header has {len(header)} bytes, at most {HEADER_BYTES - _PREFIX.size} fit"
        raise CodecError(message)
    _PREFIX.pack_into(body, 0, MAGIC, VERSION, len(header), zlib.crc32(header))
    body[_PREFIX.size : _PREFIX.size + len(header)] = header
    return body


def decode_header(key: str, body: memoryview, kind: type[H]) -> H:
    """The header from the first bytes of an object (HEADER_BYTES of them, or what there is).

    Raises:
        CodecError: truncated, foreign, of another version, damaged, or with values out of bounds.
    """
    if len(body) < HEADER_BYTES:
        message = f"{len(body)} bytes where a header takes {HEADER_BYTES}"
        raise CodecError(message)
    magic, version, length, checksum = _PREFIX.unpack_from(body)
    if magic != MAGIC:
        message = "it does not begin with Muster's magic"
        raise CodecError(message)
    if version != VERSION:
        message = f"format version {version}, where {VERSION} is known"
        raise CodecError(message)
    if length > HEADER_BYTES - _PREFIX.size:
        message = f"a header of {length} bytes, at most {HEADER_BYTES - _PREFIX.size} fit"
        raise CodecError(message)
    header = bytes(body[_PREFIX.size : _PREFIX.size + length])
    if zlib.crc32(header) != checksum:
        message = "the header's checksum does not match"
        raise CodecError(message)
    try:
        return kind.from_json(header, key)
    except DocumentError as error:
        raise CodecError(str(error)) from None


def object_bytes(count: int) -> int:
    """The size of an object that carries `count` values."""
    blocks = Blocks(count)
    return HEADER_BYTES + blocks.number * blocks.record_bytes


def byte_range(blocks: Blocks, which: range) -> tuple[int, int]:
    """Where the records of `which` lie in an object: first byte, and the one behind the last."""
    return (
        HEADER_BYTES + which.start * blocks.record_bytes,
        HEADER_BYTES + which.stop * blocks.record_bytes,
    )


def decode_blocks(key: str, body: memoryview, blocks: Blocks, which: range, limit: np.float32 = _FLOAT_MAX) -> Floats:
    """The values of the blocks `which`, from exactly their records.

    Raises:
        CodecError: wrong length, wrong checksum, or values that are NaN or beyond `limit` (infinity always is).
    """
    if len(body) != len(which) * blocks.record_bytes:
        message = f"{len(body)} bytes where blocks {which.start} to {which.stop - 1} take {len(which)} records"
        raise CodecError(message)
    records = _records(body, blocks)
    found = np.ascontiguousarray(records[:, 0]).view(_CHECKSUM_DTYPE)
    seed = _seed(key)
    for index, record, checksum in zip(which, records, found, strict=True):
        if _checksum(seed, index, record) != checksum:
            message = f"the checksum of block {index} does not match"
            raise CodecError(message)
    span = blocks.span(which)
    values = records[:, 1:].reshape(-1)[: span.stop - span.start].astype(np.float32, copy=False)
    if not is_usable(values, limit):
        message = f"it holds NaN, infinity or values beyond {limit:.0e}"
        raise CodecError(message)
    return values


def is_usable(values: Floats, limit: np.float32) -> bool:
    """Whether every value lies within ±limit; NaN fails every comparison."""
    return values.size == 0 or bool(values.max() <= limit and values.min() >= -limit)


def _records(body: memoryview, blocks: Blocks) -> Floats:
    return np.frombuffer(body, _RECORD_DTYPE).reshape(-1, 1 + blocks.elements)


def _seed(key: str) -> int:
    return zlib.crc32(key.encode())


def _checksum(seed: int, index: int, record: Floats) -> int:
    place = zlib.crc32(index.to_bytes(8, "little"), seed)
    return zlib.crc32(record[1:].data, place)
