"""Records of an object whose format the compiled kernel has."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from muster.replica.codecs.base import MAGNITUDE_MAX, Codec, Dither, Floats, Payload, unusable
from muster.replica.codecs.grouped import SHARES
from muster.replica.kernel import Kernel, kernel
from muster.replica.kernel.calls import PAYLOAD_BYTES_MIN, Destination, Format, Rows
from muster.replica.wire.blocks import CHECKSUM_BYTES, Blocks


@dataclass(frozen=True)
class CompiledRecords:
    """Encodes and decodes records of `blocks`, with their checksums: those that `codec` encodes, of `elements` each."""

    kernel: Kernel
    format: Format
    blocks: Blocks
    codec: Codec
    elements: int
    seed: int

    def encode(
        self,
        values: Floats,
        rows: Payload,
        piece: range,
        dither: Dither | None,
        *,
        added: Floats | None,
        error: Floats | None,
        decoded: Floats | None,
    ) -> None:
        """Encode the whole blocks `piece` into `rows`.

        Args:
            added: is added to the values first.
            error, decoded: receive the codec's error, and the decoded values.

        Raises:
            CodecError: values that are NaN, infinite or beyond the codec's limit.
        """
        random = None if dither is None else (dither.offsets(values.size), dither.bytes(values.size), SHARES)
        limit, records = self.codec.limit, self._rows(rows, piece)
        if not self.kernel.encode(records, values, limit, added=added, dither=random, error=error, decoded=decoded):
            raise unusable(limit)

    def decode(self, rows: Payload, piece: range, target: Destination | None) -> bool:
        """Verify the records of `piece`, and put their values into `target` (None: nowhere).

        Returns:
            Whether it is done. If not, `target` is as it was, and something is wrong with the records.
        """
        span = self.blocks.span(piece)
        return self.kernel.decode(self._rows(rows, piece), int(span.stop - span.start), MAGNITUDE_MAX, target)

    def _rows(self, rows: Payload, piece: range) -> Rows:
        return Rows(self.format, rows, self.elements, self.seed << 32 | piece.start)


def compiled_records(key: str, blocks: Blocks, run: range = range(1)) -> CompiledRecords | None:
    """The records of the object `key` that are of the kind of `run`'s; None where NumPy must do it."""
    codec, elements = blocks.kind(run)
    format_ = codec.kernel_format
    if elements % codec.grain:  # a block of float32 in the place of a coded one
        return None
    if format_ is None or blocks.record_bytes - CHECKSUM_BYTES < PAYLOAD_BYTES_MIN or (found := kernel()) is None:
        return None
    return CompiledRecords(found, format_, blocks, codec, elements, zlib.crc32(key.encode()))
