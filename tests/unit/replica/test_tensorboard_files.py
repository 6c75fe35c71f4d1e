"""The bytes of TensorBoard's event files. That TensorBoard reads them is checked where it is installed."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.replica.sinks.tensorboard import TensorBoard, _masked_checksum, _varint
from muster.replica.sinks.writer import Ending, Record


def frames(path: Path) -> Iterator[bytes]:
    """The events of a file; their checksums are right."""
    body = path.read_bytes()
    while body:
        (length,) = struct.unpack("<Q", body[:8])
        assert _masked_checksum(body[:8]) == body[8:12]
        event = body[12 : 12 + length]
        assert _masked_checksum(event) == body[12 + length : 16 + length]
        body = body[16 + length :]
        yield event


def test_the_checksum_is_castagnolis() -> None:
    # The check value of CRC-32C, masked.
    unmasked = 0xE3069283
    masked = ((unmasked >> 15 | unmasked << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert _masked_checksum(b"123456789") == struct.pack("<I", masked)


@pytest.mark.parametrize(("number", "written"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")])
def test_numbers_have_seven_bits_a_byte(number: int, written: bytes) -> None:
    assert _varint(number) == written


def test_a_file_has_a_version_a_session_and_the_values(tmp_path: Path) -> None:
    board = TensorBoard(tmp_path / "tensorboard")
    board.write([Record(300, 2.0, {"loss": 0.5}), Record(301, 3.0, {"huge": 1e300, "nan": math.nan})])
    board.close(Ending.DONE)
    [path] = (tmp_path / "tensorboard").iterdir()
    version, session, loss, others = frames(path)
    assert version.endswith(b"brain.Event:2")
    assert session.endswith(b"\x3a\x02\x08\x01")
    assert loss == (
        b"\x09"
        + struct.pack("<d", 2.0)
        + b"\x10\xac\x02"
        + b"\x2a\x0d\x0a\x0b\x0a\x04loss\x15"
        + struct.pack("<f", 0.5)
    )
    assert struct.pack("<f", math.inf) in others


def test_nothing_is_written_before_the_first_record(tmp_path: Path) -> None:
    TensorBoard(tmp_path / "tensorboard").close(Ending.FAILED)
    assert not (tmp_path / "tensorboard").exists()
