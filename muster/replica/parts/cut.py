"""How the flat element space of a model is cut among the processes of a replica. Pure.

The cut is by whole blocks of each fragment, so that codecs see the same blocks whatever the number of processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from muster.replica.codecs import FP32
from muster.replica.codecs.base import Codec
from muster.replica.wire.blocks import Blocks, exact_in

# What goes between processes is held several times: as it is read, sent, received and joined. So of a large model it is
# little, and of a small one a small share of what a process holds.
WINDOW_ELEMENTS_MAX = 4 * 2**20
WINDOW_ELEMENTS_MIN = 2**16
WINDOW_SHARE = 1 / 64


def window_elements(count: int, size: int) -> int:
    """How many of `count` elements each of `size` processes of a replica sends or receives at once."""
    return min(WINDOW_ELEMENTS_MAX, max(WINDOW_ELEMENTS_MIN, int(count / size * WINDOW_SHARE)))


@dataclass(frozen=True)
class Cut:
    """The elements that process `rank` of `size` holds: of each fragment a run of blocks.

    Its arrays hold these runs one after another. The last `exact` elements are statistics, which are averaged, and
    exchanged as float32 whatever the codec.
    """

    count: int
    codec: Codec = FP32
    fragments: int = 1
    rank: int = 0
    size: int = 1
    exact: int = 0

    @cached_property
    def parts(self) -> list[slice]:
        """The fragments."""
        return [
            slice(self.count * index // self.fragments, self.count * (index + 1) // self.fragments)
            for index in range(self.fragments)
        ]

    def fragment_of(self, round_: int) -> slice:
        """The fragment that a round carries, in turn; round 1 the first (Streaming DiLoCo, arXiv 2501.18512)."""
        return self.parts[(round_ - 1) % self.fragments]

    def parameters_in(self, part: slice) -> int:
        """How many of the elements that this process holds of a fragment are parameters; statistics follow them."""
        held = self.held(part)
        return int(min(max(self.count - self.exact, held.start), held.stop) - held.start)

    def held_by(self, rank: int, part: slice) -> slice:
        """The elements that process `rank` holds of a fragment."""
        blocks = self.blocks(part)
        span = blocks.span(blocks.shard(rank, self.size))
        return slice(part.start + span.start, part.start + max(span.start, span.stop))

    def blocks(self, part: slice) -> Blocks:
        """How a fragment is cut."""
        start, stop, _ = part.indices(self.count)
        return Blocks(stop - start, self.codec, exact_in(self.count, self.exact, slice(start, stop)))

    def held(self, part: slice) -> slice:
        """The elements that this process holds of a fragment."""
        return self.held_by(self.rank, part)

    def local(self, part: slice) -> slice:
        """Where the elements of `part`, one or all fragments, lie in this process's arrays."""
        start, stop, _ = part.indices(self.count)
        first = next(index for index, fragment in enumerate(self.parts) if fragment.start == start)
        last = next(index for index, fragment in enumerate(self.parts) if fragment.stop == stop)
        return slice(self._ends[first] - self._lengths[first], self._ends[last])

    def places(self, part: slice = slice(0, None)) -> list[tuple[slice, slice]]:
        """For each fragment in `part`: the elements that this process holds, and where they lie in its arrays."""
        start, stop, _ = part.indices(self.count)
        return [
            (self.held(fragment), slice(end - length, end))
            for fragment, length, end in zip(self.parts, self._lengths, self._ends, strict=True)
            if start <= fragment.start and fragment.stop <= stop
        ]

    @cached_property
    def runs(self) -> list[tuple[slice, slice]]:
        """As `places` of all fragments, in as few runs as possible."""
        return [(slice(0, self.count), slice(0, self.count))] if self.size == 1 else self.places()

    def within(self, span: slice) -> Iterator[tuple[slice, slice]]:
        """What this process holds of the elements `span`: where in the span, and where in its arrays."""
        for held, local in self.runs:
            first, last = max(span.start, held.start), min(span.stop, held.stop)
            if first < last:
                begin = local.start + first - held.start
                yield slice(first - span.start, last - span.start), slice(begin, begin + last - first)

    @cached_property
    def length(self) -> int:
        """How many elements this process holds."""
        return sum(self._lengths)

    @cached_property
    def _lengths(self) -> list[int]:
        return [held.stop - held.start for held in map(self.held, self.parts)]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(self._lengths))
