"""Decodes values while their bytes arrive; never holds a whole body."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator

import numpy as np

from muster.replica.wire.binary_format import CodecError, Floats, decoded
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.weighted_sum import WeightedSum

READ_TRIES = 3
_ALIGNED = 4  # bytes: of a float32, and of every record


class ByteStream:
    """Bytes that arrive in pieces of any size, read in the sizes that are needed.

    One that is not read to its end is closed: it may hold what others wait for.
    """

    def __init__(self, pieces: Iterable[memoryview]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")
        self._joined = bytearray()

    def close(self) -> None:
        """Nothing more is read."""
        if isinstance(self._pieces, Generator):
            self._pieces.close()

    def begin(self) -> None:
        """Wait for the first bytes, so that requests to several objects run in parallel."""
        if not self._rest:
            self._rest = next(self._pieces, self._rest)

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, or all that are left; valid until the next call.

        They begin at an address that values can be calculated from (`_ALIGNED`). So they are copied unless they lie in
        one piece, and there at such an address.
        """
        self.begin()
        if len(self._rest) < size or _address(self._rest) % _ALIGNED:
            return self._join(size)
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _join(self, size: int) -> memoryview:
        """The next `size` bytes, from several pieces, always in the same memory, which stays in the cache."""
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


def decoded_stream(key: str, stream: ByteStream, blocks: Blocks, which: range) -> Iterator[tuple[range, Floats]]:
    """The values of records that are still arriving: run by run of blocks, each while it is in the cache.

    Each run's values are as `decoded` returns them, and valid until the next one's.

    Raises:
        CodecError: as `decoded`, and for fewer records or more bytes than the blocks take.
    """
    room = np.empty(blocks.piece_elements, np.float32)
    for run in blocks.pieces(which):
        yield run, decoded(key, stream.take(len(run) * blocks.record_bytes), blocks, run, room)
    if stream.take(1):
        message = f"it has bytes after the records of blocks {which.start} to {which.stop - 1}"
        raise CodecError(message)


class RecordReader:
    """Decodes the records of one object's blocks, run after run; retries after damage in transfer."""

    def __init__(self, key: str, open_at: Callable[[range], ByteStream], blocks: Blocks, which: range) -> None:
        """`open_at(rest)` opens the bytes of the blocks `rest`, which end where `which` does."""
        self._key = key
        self._open_at = open_at
        self._blocks = blocks
        self._which = which
        self._stream = open_at(which)

    def begin(self) -> None:
        """Wait for the first bytes."""
        self._stream.begin()

    def add(self, run: range, total: WeightedSum, weight: np.float32) -> None:
        """Add the values of `run`, a piece of the blocks that follows the last one, to `total`.

        Raises:
            CodecError: all READ_TRIES tries failed; see `decoded`.
        """
        tries = 1
        while True:
            try:
                body = self._stream.take(len(run) * self._blocks.record_bytes)
                return total.add_records(self._key, body, self._blocks, run, weight)
            except CodecError:
                if tries == READ_TRIES:
                    raise
                tries += 1
                self._stream = self._open_at(range(run.start, self._which.stop))


def _address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data
