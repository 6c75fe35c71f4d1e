"""How a flat buffer is cut: into blocks that carry checksums, and runs of blocks (shards) that have an owner."""

from __future__ import annotations

from dataclasses import dataclass

ELEMENT_BYTES = 4
CHECKSUM_BYTES = 4
BLOCK_ELEMENTS_MIN = 256
BLOCK_ELEMENTS_MAX = 65_536
BLOCKS_AIM = 4_096  # small models still have blocks enough for every member of a large run
OBJECT_BYTES_MAX = 5 * 2**30 - 65_536  # S3: a single PUT carries at most 5 GiB; the rest is room for a header

# Below this a request costs its latency, not its bytes: small models are averaged by few members, or one.
SHARD_BYTES_MIN = 256 * 1024


@dataclass(frozen=True)
class Blocks:
    """The blocks of a buffer of `count` float32 elements. A record is a block with its checksum before it."""

    count: int

    @property
    def elements(self) -> int:
        """Elements of a block: a multiple of 256 that depends on `count` alone."""
        wanted = -(-self.count // BLOCKS_AIM)
        rounded = -(-wanted // BLOCK_ELEMENTS_MIN) * BLOCK_ELEMENTS_MIN
        return min(BLOCK_ELEMENTS_MAX, max(BLOCK_ELEMENTS_MIN, rounded))

    @property
    def number(self) -> int:
        """How many blocks there are; the last is padded with zeros."""
        return -(-self.count // self.elements)

    @property
    def record_bytes(self) -> int:
        """Bytes of one record."""
        return CHECKSUM_BYTES + ELEMENT_BYTES * self.elements

    def shards(self, members: int) -> int:
        """Into how many shards `members` cut the buffer."""
        return max(1, min(members, self.number, self.count * ELEMENT_BYTES // SHARD_BYTES_MIN))

    def shard(self, index: int, shards: int) -> range:
        """The blocks of shard `index` of `shards`."""
        return range(self.number * index // shards, self.number * (index + 1) // shards)

    def span(self, blocks: range) -> slice:
        """The elements that `blocks` cover."""
        return slice(blocks.start * self.elements, min(blocks.stop * self.elements, self.count))
