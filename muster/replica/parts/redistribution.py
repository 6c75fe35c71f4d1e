"""Which elements go between the local shards of a replica's processes and their slices of the flat space. Pure.

All processes compute the same plan, so each knows in advance what it will receive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

from muster.replica.parts.local_shard import LocalShard, Places

# Elements of one run whose places are not next to each other: their places take 8 bytes each.
RUN_ELEMENTS = 2**20


@dataclass(frozen=True)
class Run:
    """Elements that go between a local shard and a slice.

    Attributes:
        tensor: the tensor's number.
        local: where they lie in the flattened local shard.
        places: where they lie in the slice, counted from its start.
    """

    tensor: int
    local: slice
    places: slice | Places


class Redistribution:
    """Tensors one after another in the flat space, each held by the processes of a replica as its shards say."""

    def __init__(self, shards: Sequence[Sequence[LocalShard]], first_only: int) -> None:
        """`shards[t][r]` is what process r holds of tensor t; every element is held by one process or more.

        Where several processes hold the same part they have copies of it. Of the tensors from `first_only` on, whose
        copies may differ, the copy of the first process counts.
        """
        self._shards = shards
        self._first_only = first_only
        self._ends = list(accumulate(prod(held[0].shape) for held in shards))

    def reads(self, source: int, reader: int, span: slice) -> Iterator[Run]:
        """What `source` sends to `reader`, which holds the elements `span`, in order."""
        for tensor in self._overlapping(span):
            if self._sender(tensor, source, reader) == source:
                yield from self._runs(tensor, source, span)

    def writes(self, target: int, span: slice) -> Iterator[Run]:
        """What `target` needs of the elements `span`, which another process holds, in order."""
        for tensor in self._overlapping(span):
            yield from self._runs(tensor, target, span)

    def _overlapping(self, span: slice) -> range:
        if span.start >= span.stop:
            return range(0)
        return range(bisect_right(self._ends, span.start), bisect_right(self._ends, span.stop - 1) + 1)

    def _sender(self, tensor: int, source: int, reader: int) -> int:
        """Which of the processes with the same part as `source` sends it to `reader`: itself, if it is one of them."""
        held = self._shards[tensor]
        copies = [rank for rank, shard in enumerate(held) if shard == held[source]]
        if tensor >= self._first_only:
            return copies[0]
        return reader if reader in copies else copies[reader % len(copies)]

    def _runs(self, tensor: int, holder: int, span: slice) -> Iterator[Run]:
        shard = self._shards[tensor][holder]
        offset = self._ends[tensor] - prod(shard.shape)
        start, stop = shard.before(max(0, span.start - offset)), shard.before(span.stop - offset)
        while start < stop:
            end = stop if shard.is_run(start, stop) else min(stop, start + RUN_ELEMENTS)
            places = shard.places(start, end)
            shift = offset - span.start
            placed = slice(places.start + shift, places.stop + shift) if isinstance(places, slice) else places + shift
            yield Run(tensor, slice(start, end), placed)
            start = end


def length(runs: Iterable[Run]) -> int:
    """How many elements `runs` have."""
    return sum(run.local.stop - run.local.start for run in runs)
