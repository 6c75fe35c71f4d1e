"""The result of a replica: the round in which its training ended, and the checksum of the global parameters then."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.parts.collection import collected
from muster.replica.parts.cut import Cut, window_elements
from muster.replica.parts.link import Link, by_first


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
    step = window_elements(cut.count, link.size)
    spans = [slice(start, min(start + step, cut.count)) for start in range(0, cut.count, step)]
    for values in collected(cut, state.parameters, spans, link):
        checksum.update(values.data)
    return Result(state.round, by_first(link, checksum.hexdigest))
