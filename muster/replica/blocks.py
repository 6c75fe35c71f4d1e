"""How a flat buffer is cut: into blocks that carry checksums, and runs of blocks (shards) that have an owner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from muster.replica.codecs import FP32
from muster.replica.codecs.base import Codec

CHECKSUM_BYTES = 4
BLOCK_ELEMENTS_MAX = 65_536
BLOCKS_AIM = 4_096  # small models still have blocks enough for every member of a large run
OBJECT_BYTES_MAX = 5 * 2**30 - 65_536  # S3: a single PUT carries at most 5 GiB; the rest is room for a header

# Values that are coded at once: enough for NumPy's calls to cost little beside their work, few enough for the cache.
PIECE_ELEMENTS = 65_536

# Below this a request costs its latency, not its bytes: small models are averaged by few members, or one.
SHARD_BYTES_MIN = 256 * 1024


@dataclass(frozen=True)
class Blocks:
    """The blocks of a buffer of `count` float32 elements. A record is a coded block with its checksum before it."""

    count: int
    codec: Codec = FP32

    @property
    def elements(self) -> int:
        """Elements of a block: a multiple of the codec's grain that depends on `count` alone."""
        wanted = -(-self.count // BLOCKS_AIM)
        grains = max(1, -(-wanted // self.codec.grain))
        return min(BLOCK_ELEMENTS_MAX, grains * self.codec.grain)

    @property
    def number(self) -> int:
        """How many blocks there are; the last is padded with zeros."""
        return -(-self.count // self.elements)

    @property
    def record_bytes(self) -> int:
        """Bytes of one record."""
        return CHECKSUM_BYTES + self.codec.payload_bytes(self.elements)

    def shards(self, members: int) -> int:
        """Into how many shards `members` cut the buffer."""
        return max(1, min(members, self.number, self.number * self.record_bytes // SHARD_BYTES_MIN))

    def shard(self, index: int, shards: int) -> range:
        """The blocks of shard `index` of `shards`."""
        return range(self.number * index // shards, self.number * (index + 1) // shards)

    def span(self, blocks: range) -> slice:
        """The elements that `blocks` cover."""
        return slice(blocks.start * self.elements, min(blocks.stop * self.elements, self.count))

    def pieces(self, blocks: range) -> Iterator[range]:
        """`blocks` in runs that are coded at once."""
        step = max(1, PIECE_ELEMENTS // self.elements)
        for first in range(blocks.start, blocks.stop, step):
            yield range(first, min(first + step, blocks.stop))
