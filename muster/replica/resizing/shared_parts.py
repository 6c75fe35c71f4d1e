"""What the processes of a group of another size have stored, as a process of this group holds it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from muster.replica.codecs.base import Floats
from muster.replica.parts.cut import Cut
from muster.replica.parts.local_shard import Indices, LocalShard

Places = tuple[slice, ...]


def copy_slice(target: Floats, cut: Cut, part: Floats, rank: int, size: int) -> None:
    """Copy to `target`, which holds what `cut` says, what process `rank` of `size` had of the same elements."""
    theirs = replace(cut, rank=rank, size=size)
    for (source,), (place,) in _shared_blocks([theirs.runs], [cut.runs]):
        target[place] = part[source]


def shared_blocks(old: LocalShard, new: LocalShard) -> Iterator[tuple[Places, Places]]:
    """Where the elements that two processes both hold of a tensor lie in the part of the first, and of the second."""
    return _shared_blocks([_runs(indices) for indices in old.held], [_runs(indices) for indices in new.held])


def stored_shard(shape: tuple[int, ...], found: tuple[int, ...], rank: int, size: int) -> LocalShard | None:
    """What process `rank` of `size` had of a tensor of `shape`, by the shape of its part.

    A part of one dimension, cut as `torch.chunk` does, or all of it; also where groups of processes have copies, each
    of consecutive ranks. None where the shape says something else, as with two dimensions.
    """
    whole = LocalShard.whole(shape)
    if found == whole.local_shape:
        return whole
    for ways in range(size, 1, -1):
        for dimension in range(len(whole.shape)) if size % ways == 0 else ():
            shard = whole.split(dimension, ways, rank % ways)
            if shard.local_shape == found:
                return shard
    return None


_Run = tuple[slice, slice]
"""Elements next to each other: where they are in the whole, and where in the part."""


def _runs(indices: Indices) -> list[_Run]:
    runs, start = [], 0
    for run in indices:
        runs.append((slice(run.start, run.stop), slice(start, start + len(run))))
        start += len(run)
    return runs


def _shared_blocks(old: list[list[_Run]], new: list[list[_Run]]) -> Iterator[tuple[Places, Places]]:
    shared = [list(_shared(theirs, own)) for theirs, own in zip(old, new, strict=True)]
    for block in product(*shared):
        yield tuple(source for source, _ in block), tuple(place for _, place in block)


def _shared(old: list[_Run], new: list[_Run]) -> Iterator[tuple[slice, slice]]:
    for old_span, old_place in old:
        for new_span, new_place in new:
            start, stop = max(old_span.start, new_span.start), min(old_span.stop, new_span.stop)
            if start < stop:
                first = old_place.start + start - old_span.start
                second = new_place.start + start - new_span.start
                yield slice(first, first + stop - start), slice(second, second + stop - start)
