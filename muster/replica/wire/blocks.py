"""How a flat buffer is cut: into blocks with checksums, and into shards (runs of blocks), each with an owner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from muster.replica.codecs import FP32
from muster.replica.codecs.base import Codec, Floats
from muster.replica.free_memory import pages

CHECKSUM_BYTES = 4
ELEMENT_BYTES = 4  # of float32
# A block costs one checksum call and is the smallest unit of a read: 64 KiB of float32 for small models, so that every
# member gets a shard, and 256 KiB where the calls would add up.
BLOCK_ELEMENTS_MIN = 16_384
BLOCK_ELEMENTS_MAX = 65_536
BLOCKS_AIM = 4_096

# Values coded per call: enough to make NumPy's call overhead small, few enough to stay in the cache.
PIECE_ELEMENTS = 65_536

# Received per call. It stays in the cache until it is decoded.
STREAM_BYTES = 2**18

# Below this size a request costs its latency, not its bytes: few members, or one, average a small model.
SHARD_BYTES_MIN = 256 * 1024
# The size of a shard of a large model: a broken connection costs no more than it.
SHARD_BYTES_MAX = 64 * 2**20
# Of a mean: one connection to S3 carries 85 MB/s, so a mean has enough shards to fill the connections of a replica, as
# long as the bytes of each take longer than the latency of their request.
SHARD_BYTES_AIM = 16 * 2**20
FILLED_SHARD_BYTES_MIN = 2 * 2**20
CONNECTIONS = 16
"""Requests of a replica that run at the same time."""


@dataclass(frozen=True)
class Blocks:
    """The blocks of a buffer of `count` float32 elements. A record is a checksum followed by a coded block.

    The last `exact` elements are float32 whatever the codec, in blocks of their own: of as many bytes as the others,
    and so of fewer elements. The last block of both kinds is padded with zeros.

    Attributes:
        elements: of a coded block: a multiple of the codec's grain; depends on `count` alone and needs little padding.
        exact_elements: of a block of float32.
        coded: how many blocks are coded; those of float32 follow.
        number: how many blocks there are.
        record_bytes: bytes of one record.
    """

    count: int
    codec: Codec = FP32
    exact: int = 0
    elements: int = field(init=False)
    exact_elements: int = field(init=False)
    coded: int = field(init=False)
    number: int = field(init=False)
    record_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        exact = self.exact if self.codec.loses else 0
        elements = _block_elements(self.count, self.codec.grain)
        payload = (FP32 if 0 < exact == self.count else self.codec).payload_bytes(elements)
        exact_elements = payload // ELEMENT_BYTES
        coded = -(-(self.count - exact) // elements)
        vars(self).update(
            exact=exact,
            elements=elements,
            exact_elements=exact_elements,
            coded=coded,
            number=coded + -(-exact // exact_elements),
            record_bytes=CHECKSUM_BYTES + payload,
        )

    def exact_in(self, elements: slice) -> int:
        """How many of `elements` are float32: the last ones."""
        return exact_in(self.count, self.exact, elements)

    def kind(self, run: range) -> tuple[Codec, int]:
        """What encodes the blocks of `run`, which are of one kind, and the elements of each."""
        return (FP32, self.exact_elements) if run.start >= self.coded and self.exact else (self.codec, self.elements)

    def shards(self, members: int) -> int:
        """The number of shards for `members`: fewer than members for small buffers, several each for large ones."""
        least = self._fewest_shards(members)
        each = self.number * self.record_bytes / least
        return least * max(1, min(self.number // least, round(each / SHARD_BYTES_MAX)))

    def shards_of_mean(self, members: int) -> int:
        """The number of shards of a mean: as `shards`, and where that is fewer, one for each connection."""
        least = self._fewest_shards(members)
        each = self.number * self.record_bytes / least
        filling = min(-(-CONNECTIONS // least), int(each // FILLED_SHARD_BYTES_MIN))
        return least * max(1, min(self.number // least, max(filling, round(each / SHARD_BYTES_AIM))))

    def _fewest_shards(self, members: int) -> int:
        return max(1, min(members, self.number, self.number * self.record_bytes // SHARD_BYTES_MIN))

    def shard(self, index: int, shards: int) -> range:
        """The blocks of shard `index` of `shards`."""
        return range(self.number * index // shards, self.number * (index + 1) // shards)

    def span(self, blocks: range) -> slice:
        """The elements that `blocks` cover."""
        return slice(self._first(blocks.start), self._first(blocks.stop))

    def _first(self, block: int) -> int:
        """The first element of a block."""
        border = self.count - self.exact
        beyond = block - self.coded
        first = block * self.elements if beyond <= 0 else border + beyond * self.exact_elements
        return int(min(first, border if beyond <= 0 else self.count))

    def covering(self, elements: slice) -> range:
        """The blocks that hold `elements`, one or more."""
        return range(self._block(elements.start), self._block(elements.stop - 1) + 1)

    def _block(self, element: int) -> int:
        """The block that holds an element."""
        beyond = element - (self.count - self.exact)
        return int(element // self.elements if beyond < 0 else self.coded + beyond // self.exact_elements)

    @property
    def piece_elements(self) -> int:
        """The most elements that a piece has, with the padding."""
        return max(1, PIECE_ELEMENTS // self.elements) * self.elements

    @property
    def stream_bytes(self) -> int:
        """The bytes in which records are received: whole pieces, and enough that a call costs little beside them."""
        piece = self.piece_elements // self.elements * self.record_bytes
        return max(1, STREAM_BYTES // piece) * piece

    def pieces(self, blocks: range) -> Iterator[range]:
        """`blocks` in runs of one kind, each coded by one call."""
        step = self.piece_elements // self.elements
        for run in self._between(blocks, self.coded):
            for first in range(run.start, run.stop, step):
                yield range(first, min(first + step, run.stop))

    def alike(self, blocks: range) -> Iterator[range]:
        """`blocks` in runs of one kind, in which all are whole or one is padded."""
        border = self.count - self.exact
        whole = border // self.elements, self.coded + self.exact // self.exact_elements
        return self._between(blocks, whole[0], self.coded, whole[1])

    @staticmethod
    def _between(blocks: range, *edges: int) -> Iterator[range]:
        cuts = [blocks.start, *(min(max(edge, blocks.start), blocks.stop) for edge in edges), blocks.stop]
        return (range(start, stop) for start, stop in pairwise(cuts) if start < stop)


def exact_in(count: int, exact: int, elements: slice) -> int:
    """How many of `elements`, of `count`, are among the last `exact`."""
    return max(0, int(elements.stop) - max(int(elements.start), count - exact))


def _block_elements(count: int, grain: int) -> int:
    wanted = min(BLOCK_ELEMENTS_MAX, max(BLOCK_ELEMENTS_MIN, -(-count // BLOCKS_AIM)))
    number = max(1, -(-count // wanted))
    even = -(-count // number)
    return max(1, -(-even // grain)) * grain


class Buffers:
    """One process's large buffers, by name, reused from round to round. Each has one user at a time.

    New memory comes from the system page by page, each zeroed and mapped: for a round's two large buffers that takes
    about as long as coding into them.
    """

    def __init__(self) -> None:
        self._kept: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, size: int) -> NDArray[np.uint8]:
        """`size` bytes of undefined content; the same memory as before unless more is requested than ever before."""
        kept = self._kept.get(name)
        if kept is None or kept.size < size:
            # Free the old buffer before the new one is allocated.
            self._kept.pop(name, None)
            del kept
            kept = self._kept[name] = pages(size)
        return kept[:size]

    def floats(self, name: str, count: int) -> Floats:
        """`count` float32 values of undefined content, as `take`."""
        return self.take(name, 4 * count).view(np.float32)
