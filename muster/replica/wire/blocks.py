"""How a flat buffer is cut: into blocks that carry checksums, and runs of blocks (shards) that have an owner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from muster.replica.codecs import FP32
from muster.replica.codecs.base import Codec

CHECKSUM_BYTES = 4
# Every block costs a call for its checksum, and is the least that one reads: 64 KiB of float32 where a model is small
# enough for every member to have its share, 256 KiB where the calls would count.
BLOCK_ELEMENTS_MIN = 16_384
BLOCK_ELEMENTS_MAX = 65_536
BLOCKS_AIM = 4_096

# Values that are coded at once: enough for NumPy's calls to cost little beside their work, few enough for the cache.
PIECE_ELEMENTS = 65_536

# Below this a request costs its latency, not its bytes: small models are averaged by few members, or one.
SHARD_BYTES_MIN = 256 * 1024
# About what a shard has where the members are few for the model: one connection to S3 carries 85 MB/s, so that more
# pieces than members are read side by side; and a broken connection costs seconds.
SHARD_BYTES_AIM = 64 * 2**20


@dataclass(frozen=True)
class Blocks:
    """The blocks of a buffer of `count` float32 elements. A record is a coded block with its checksum before it."""

    count: int
    codec: Codec = FP32

    @cached_property
    def elements(self) -> int:
        """Elements of a block: a multiple of the codec's grain that depends on `count` alone; little is padded."""
        wanted = min(BLOCK_ELEMENTS_MAX, max(BLOCK_ELEMENTS_MIN, -(-self.count // BLOCKS_AIM)))
        number = max(1, -(-self.count // wanted))
        even = -(-self.count // number)
        return max(1, -(-even // self.codec.grain)) * self.codec.grain

    @cached_property
    def number(self) -> int:
        """How many blocks there are; the last is padded with zeros."""
        return -(-self.count // self.elements)

    @cached_property
    def record_bytes(self) -> int:
        """Bytes of one record."""
        return CHECKSUM_BYTES + self.codec.payload_bytes(self.elements)

    def shards(self, members: int) -> int:
        """Into how many shards `members` cut the buffer: fewer than members where it is small, several for each where
        it is large.
        """
        size = self.number * self.record_bytes
        least = max(1, min(members, self.number, size // SHARD_BYTES_MIN))
        return least * max(1, min(self.number // least, round(size / least / SHARD_BYTES_AIM)))

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
