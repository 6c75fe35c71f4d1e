"""TensorBoard's event files. Muster writes the format itself: it is small, and no image needs another package for it.

A file is a list of records: length (uint64), checksum of the length, protocol buffer `Event`, checksum of the event;
all little-endian, checksums masked CRC-32C (TFRecord). Of an `Event` these fields are used:

| field | type | meaning |
|---|---|---|
| 1 | double | seconds since 1970 |
| 2 | int64 | step |
| 3 | string | `brain.Event:2`, in the first event of a file |
| 5 | message | `Summary`: its field 1 is a value with tag (1, string) and number (2, float) |
| 7 | message | `SessionLog`: its field 1 is 1 where a session starts; readers then drop earlier files' later steps |
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from muster.options.sinks.replica.writer import Record
from muster.replica.statistics.metrics import Ending

_VERSION = b"brain.Event:2"
_SESSION_START = b"\x08\x01"
_VARINT, _BITS_64, _BYTES, _BITS_32 = 0, 1, 2, 5


class TensorBoard:
    """One replica's event files, in a folder that its reruns continue: each process adds a file."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        """Creates nothing before the first record."""
        self._folder = folder
        self._file: BinaryIO | None = None

    def write(self, records: Sequence[Record]) -> None:
        """Append the records to the file of this process."""
        file = self._file or self._opened(records[0])
        self._file = file
        file.write(b"".join(_framed(_event(record.at, record.step, 5, _summary(record.values))) for record in records))
        file.flush()

    def close(self, ending: Ending) -> None:  # noqa: ARG002 - a file says nothing about the end
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _opened(self, first: Record) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        # Readers look for this beginning of the name, and read the files of a folder in the order of their names.
        seconds, rest = divmod(time.time_ns(), 1_000_000_000)
        path = self._folder / f"events.out.tfevents.{seconds:010d}.{rest:09d}.muster"
        file = path.open("xb")
        file.write(_framed(_event(first.at, 0, 3, _VERSION)))
        file.write(_framed(_event(first.at, first.step, 7, _SESSION_START)))
        return file


def _event(at: float, step: int, field: int, content: bytes) -> bytes:
    timed = _key(1, _BITS_64) + struct.pack("<d", at) + _key(2, _VARINT) + _varint(step)
    return timed + _key(field, _BYTES) + _sized(content)


def _summary(values: Mapping[str, float]) -> bytes:
    return b"".join(_key(1, _BYTES) + _sized(_value(name, value)) for name, value in values.items())


def _value(name: str, value: float) -> bytes:
    return _key(1, _BYTES) + _sized(name.encode()) + _key(2, _BITS_32) + _float(value)


def _float(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the highest bit of a byte says that more follow."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def _framed(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + _masked_checksum(length) + event + _masked_checksum(event)


def _masked_checksum(content: bytes) -> bytes:
    """CRC-32C, rotated and shifted by a constant, as TFRecord does it."""
    checksum = 0xFFFFFFFF
    for byte in content:
        checksum = _CRC_32C[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    checksum ^= 0xFFFFFFFF
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _crc_32c_of_byte(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_32C = [_crc_32c_of_byte(byte) for byte in range(256)]
