"""The whole of what a replica's processes hold, range by range, in its first process: never all of it at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from muster.replica.codecs.base import Floats
from muster.replica.parts.cut import Cut
from muster.replica.parts.link import Link


def collected(cut: Cut, values: Floats, wanted: Iterable[slice], link: Link) -> Iterator[Floats]:
    """The elements of each range of `wanted`, in the first process; no elements in the others. Collective.

    Args:
        values: what this process holds by `cut`.
    """
    nothing = np.empty(0, np.float32)
    for span in wanted:
        held = [list(_held(replace(cut, rank=rank), span)) for rank in range(link.size)]
        own = [values[local] for _, local in held[link.rank]]
        if link.size == 1:
            yield own[0] if own else nothing
            continue
        sends = [np.concatenate([nothing, *own]), *[nothing] * (link.size - 1)]
        counts = [sum(within.stop - within.start for within, _ in pieces) for pieces in held]
        received = link.swap(sends, counts if link.rank == 0 else [0] * link.size)
        if link.rank:
            yield nothing
            continue
        whole = np.empty(span.stop - span.start, np.float32)
        for pieces, found in zip(held, received, strict=True):
            start = 0
            for within, _ in pieces:
                whole[within] = found[start : start + within.stop - within.start]
                start += within.stop - within.start
        yield whole


def _held(cut: Cut, span: slice) -> Iterator[tuple[slice, slice]]:
    """What a process holds of `span`: where in the range, and where in its arrays."""
    for held, local in cut.runs:
        first, last = max(span.start, held.start), min(span.stop, held.stop)
        if first < last:
            begin = local.start + first - held.start
            yield slice(first - span.start, last - span.start), slice(begin, begin + last - first)
