"""The result of a replica: the round in which its training ended, and the checksum of the global parameters then."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.parts.collection import collected
from muster.replica.parts.cut import Cut
from muster.replica.parts.link import Link, by_first

# How many values the first process holds at once of those that the others hold.
_WINDOW_ELEMENTS = 4 * 2**20


@dataclass(frozen=True)
class Result:
    """The global parameters after `round`.

    `checksum` is that of their raw bytes (SHA-256, float32), the same on all replicas.
    """

    round: int
    checksum: str


def result_of(cut: Cut, state: GlobalState, link: Link) -> Result:
    """The result, in all processes of the replica. Collective.

    Raises:
        GroupError: another process of the replica has ended.
    """
    checksum = hashlib.sha256()
    starts = range(0, cut.count, _WINDOW_ELEMENTS)
    spans = [slice(start, min(start + _WINDOW_ELEMENTS, cut.count)) for start in starts]
    for values in collected(cut, state.parameters, spans, link):
        checksum.update(values.data)
    return Result(state.round, by_first(link, checksum.hexdigest))
