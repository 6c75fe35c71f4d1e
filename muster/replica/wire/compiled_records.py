"""Records of an object whose format the compiled kernel has."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from muster.replica.codecs.base import MAGNITUDE_MAX, Dither, Floats, Payload, unusable
from muster.replica.codecs.grouped import SHARES
from muster.replica.kernel import Kernel, kernel
from muster.replica.kernel.calls import PAYLOAD_BYTES_MIN, Format, Rows
from muster.replica.wire.blocks import CHECKSUM_BYTES, Blocks

ONE = np.float32(1)


@dataclass(frozen=True)
class CompiledRecords:
    """Encodes and decodes the records of `blocks`, with their checksums."""

    kernel: Kernel
    format: Format
    blocks: Blocks
    seed: int

    def encode(
        self, values: Floats, rows: Payload, piece: range, dither: Dither | None, *, kept: tuple[Floats | None, ...]
    ) -> None:
        """Encode the whole blocks `piece` into `rows`.

        Args:
            kept: what receives the codec's error, and the decoded values; None: nothing does.

        Raises:
            CodecError: values that are NaN, infinite or beyond the codec's limit.
        """
        random = None if dither is None else (dither.offsets(values.size), dither.bytes(values.size), SHARES)
        error, decoded = kept
        limit = self.blocks.codec.limit
        if not self.kernel.encode(self._rows(rows, piece), values, limit, dither=random, error=error, decoded=decoded):
            raise unusable(limit)

    def decode(
        self, rows: Payload, piece: range, target: Floats | None, *, weight: np.float32 = ONE, adds: bool = False
    ) -> bool:
        """Verify the records of `piece`, and put their values times `weight` into `target`, or add them to it.

        Args:
            target: None: they are only verified.

        Returns:
            Whether it is done. If not, `target` is as it was, and something is wrong with the records.
        """
        span = self.blocks.span(piece)
        count = int(span.stop - span.start)
        return self.kernel.decode(self._rows(rows, piece), count, MAGNITUDE_MAX, target, weight=weight, adds=adds)

    def _rows(self, rows: Payload, piece: range) -> Rows:
        return Rows(self.format, rows, self.blocks.elements, self.seed << 32 | piece.start)


def compiled_records(key: str, blocks: Blocks) -> CompiledRecords | None:
    """The records of the object `key`; None where NumPy must do it."""
    format_ = blocks.codec.kernel_format
    if format_ is None or blocks.record_bytes - CHECKSUM_BYTES < PAYLOAD_BYTES_MIN or (found := kernel()) is None:
        return None
    return CompiledRecords(found, format_, blocks, zlib.crc32(key.encode()))
