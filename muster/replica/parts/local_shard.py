"""What one process holds of a tensor that is sharded over the processes of a replica. Pure.

Each dimension has the ascending indices that the process holds, and the local shard is their product. So a flattened
shard is an ascending subsequence of the flattened tensor: its elements of any range lie next to each other.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.int64]
Indices = tuple[range, ...]
"""Ascending indices, as ranges of neighbours."""


@dataclass(frozen=True)
class LocalShard:
    """A process's part of a tensor of `shape`: the indices that it holds in each dimension."""

    shape: tuple[int, ...]
    held: tuple[Indices, ...]

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> LocalShard:
        """The whole tensor. A scalar is a tensor of one element in one dimension."""
        shape = shape or (1,)
        return cls(shape, tuple((range(size),) for size in shape))

    def split(self, dimension: int, ways: int, index: int, factor: int = 1) -> LocalShard:
        """Part `index` of `ways` parts along a dimension, cut as `torch.chunk` does: all but the last are equally long.

        With a `factor` the indices are cut into as many pieces first, and each piece into `ways` parts: the result has
        part `index` of each piece. (FSDP over tensor parallelism shards like this: PyTorch's `_StridedShard`.)
        """
        pieces = [_chunk(self.held[dimension], factor, piece) for piece in range(factor)]
        kept = tuple(run for piece in pieces for run in _chunk(piece, ways, index))
        return LocalShard(self.shape, (*self.held[:dimension], _joined(kept), *self.held[dimension + 1 :]))

    @cached_property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return tuple(_length(indices) for indices in self.held)

    @cached_property
    def count(self) -> int:
        """The part's elements."""
        return prod(self.local_shape)

    def before(self, element: int) -> int:
        """How many of the part's elements lie before an element of the flattened tensor."""
        if element >= prod(self.shape):
            return self.count
        found = 0
        for dimension, (indices, rest) in enumerate(zip(self.held, self._local_strides, strict=True)):
            place, element = divmod(element, prod(self.shape[dimension + 1 :]))
            found += sum(min(max(place - run.start, 0), len(run)) for run in indices) * rest
            if not any(place in run for run in indices):
                break
        return found

    def is_run(self, start: int, stop: int) -> bool:
        """Whether the part's elements from `start` up to `stop` lie side by side in the flattened tensor."""
        return self._place(stop - 1) - self._place(start) == stop - 1 - start

    def places(self, start: int, stop: int) -> slice | Places:
        """Where the part's elements from `start` up to `stop` lie in the flattened tensor; a slice if side by side."""
        if self.is_run(start, stop):
            first = self._place(start)
            return slice(first, first + stop - start)
        coordinates = np.unravel_index(np.arange(start, stop), self.local_shape)
        found = np.zeros(stop - start, np.int64)
        for indices, coordinate, stride in zip(self._indices, coordinates, self._strides, strict=True):
            found += indices[coordinate] * stride
        return found

    def _place(self, element: int) -> int:
        found = 0
        for indices, rest, stride in zip(self.held, self._local_strides, self._strides, strict=True):
            place, element = divmod(element, rest)
            ends = self._ends(indices)
            run = bisect_right(ends, place)
            found += indices[run][place - (ends[run - 1] if run else 0)] * stride
        return found

    @staticmethod
    def _ends(indices: Indices) -> list[int]:
        ends: list[int] = []
        for run in indices:
            ends.append(len(run) + (ends[-1] if ends else 0))
        return ends

    @cached_property
    def _indices(self) -> list[Places]:
        return [np.concatenate([np.arange(run.start, run.stop) for run in indices]) for indices in self.held]

    @cached_property
    def _strides(self) -> list[int]:
        return [prod(self.shape[dimension + 1 :]) for dimension in range(len(self.shape))]

    @cached_property
    def _local_strides(self) -> list[int]:
        return [prod(self.local_shape[dimension + 1 :]) for dimension in range(len(self.shape))]


def _length(indices: Indices) -> int:
    return sum(len(run) for run in indices)


def _chunk(indices: Indices, ways: int, index: int) -> Indices:
    """Part `index` of `ways`, as `torch.chunk` cuts; empty where it makes fewer parts."""
    length = -(-_length(indices) // ways)
    start, stop = index * length, (index + 1) * length
    kept, passed = [], 0
    for run in indices:
        part = run[max(start - passed, 0) : max(stop - passed, 0)]
        if part:
            kept.append(part)
        passed += len(run)
    return tuple(kept)


def _joined(indices: Indices) -> Indices:
    """Neighbouring runs as one: equal parts have equal runs."""
    joined: list[range] = []
    for run in indices:
        if joined and joined[-1].stop == run.start:
            joined[-1] = range(joined[-1].start, run.stop)
        else:
            joined.append(run)
    return tuple(joined)
