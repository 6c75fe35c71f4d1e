"""Values decoded while their bytes still come in: no whole body is ever held."""

from __future__ import annotations

from collections.abc import Iterable

from muster.replica.blocks import Blocks
from muster.replica.codec import CodecError, Floats, decode_into


class Incoming:
    """Bytes that arrive in pieces of any size, taken in the sizes that are needed."""

    def __init__(self, pieces: Iterable[memoryview]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, or all that are left; without a copy where they came in one piece."""
        if not self._rest:
            self._rest = next(self._pieces, self._rest)
        if len(self._rest) < size:
            joined = bytearray(self._rest)
            while len(joined) < size and (piece := next(self._pieces, None)) is not None:
                joined += piece
            self._rest = memoryview(joined)
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken


def decode_incoming(values: Floats, key: str, incoming: Incoming, blocks: Blocks, which: range) -> None:
    """As `codec.decode_into`, from records that still come in: run by run of blocks, each while it is in the cache.

    Raises:
        CodecError: as `codec.decode_into`, and for fewer records or more bytes than the blocks take.
    """
    offset = blocks.span(which).start
    for run in blocks.pieces(which):
        span = blocks.span(run)
        records = incoming.take(len(run) * blocks.record_bytes)
        decode_into(values[span.start - offset : span.stop - offset], key, records, blocks, run)
    if incoming.take(1):
        message = f"there is more than the records of blocks {which.start} to {which.stop - 1}"
        raise CodecError(message)
