"""Values decoded while their bytes still come in: no whole body is ever held."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from muster.replica.wire.binary_format import CodecError, Floats, decode_into
from muster.replica.wire.blocks import Blocks

READ_TRIES = 3


class Incoming:
    """Bytes that arrive in pieces of any size, taken in the sizes that are needed."""

    def __init__(self, pieces: Iterable[memoryview]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")
        self._joined = bytearray()

    def begin(self) -> None:
        """Wait for the first bytes: what has to be asked of several places is asked of all at once."""
        if not self._rest:
            self._rest = next(self._pieces, self._rest)

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, or all that are left; without a copy where they came in one piece. Valid until the
        next call.
        """
        self.begin()
        if len(self._rest) < size:
            return self._join(size)
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _join(self, size: int) -> memoryview:
        """The next `size` bytes, from several pieces; in the same memory every time, which lies in the cache."""
        if len(self._joined) < size:
            self._joined = bytearray(size)
        joined, filled = memoryview(self._joined), 0
        while True:
            part = self._rest[: size - filled]
            joined[filled : filled + len(part)] = part
            filled += len(part)
            self._rest = self._rest[len(part) :]
            if filled == size or (piece := next(self._pieces, None)) is None:
                return joined[:filled]
            self._rest = piece


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


class Records:
    """The records of one object's blocks, decoded run after run; damage on the way passes with another look."""

    def __init__(self, key: str, open_at: Callable[[range], Incoming], blocks: Blocks, which: range) -> None:
        """`open_at` brings the bytes of the last blocks of `which`, from any of them on."""
        self._key = key
        self._open_at = open_at
        self._blocks = blocks
        self._which = which
        self._incoming = open_at(which)

    def begin(self) -> None:
        """Wait for the first bytes."""
        self._incoming.begin()

    def decode(self, values: Floats, run: range) -> None:
        """Fill `values` with those of `run`, which follows the last one.

        Raises:
            CodecError: READ_TRIES times the same or something else was wrong with them; see `codec.decode_into`.
        """
        for left in reversed(range(READ_TRIES)):
            try:
                body = self._incoming.take(len(run) * self._blocks.record_bytes)
                decode_into(values, self._key, body, self._blocks, run)
            except CodecError:
                if not left:
                    raise
                self._incoming = self._open_at(range(run.start, self._which.stop))
            else:
                return
