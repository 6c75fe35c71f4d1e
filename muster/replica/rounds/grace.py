"""How long a quorum waits for the others: learnt from the arrivals of the last rounds. Pure.

All times are differences on the store's clock, as the commits record them; no replica's own clock has a part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median

from muster.contract.run.commit import Commit

ROUNDS_SEEN = 16  # as many as are remembered: enough for a quantile, few enough to follow a change
ROUNDS_MIN = 3  # with fewer there is nothing to learn from: the longest window holds
QUANTILE = 0.9
# A window twice as long as nine in ten rounds needed leaves nobody out for a hiccup.
FACTOR = 2.0
# To lose a contribution costs its sender a round, to wait costs each of the others the wait: a tenth is cheap.
ROUND_FRACTION = 0.1
# S3 tells creation times in whole seconds, so what seems to be no wait may have been one.
GRACE_MIN_SECONDS = 2.0


def grace_window(longest_seconds: float, least: int, recent: Sequence[Commit]) -> float:
    """Seconds for which `least` participants wait for the others that are expected.

    Args:
        longest_seconds: the bound (rendezvous.grace_seconds), and the window while nothing is known.
        least: how many make a quorum.
        recent: the last rounds' commits, oldest first.
    """
    waits = sorted(_waits(least, recent[-ROUNDS_SEEN:]))
    if len(waits) < ROUNDS_MIN:
        return longest_seconds
    usual = waits[min(len(waits) - 1, int(QUANTILE * len(waits)))]
    learnt = max(FACTOR * usual, ROUND_FRACTION * _round_seconds(recent), GRACE_MIN_SECONDS)
    return min(longest_seconds, learnt)


def _waits(least: int, recent: Sequence[Commit]) -> list[float]:
    """How long each round waited after its quorum was there, or should have."""
    waits = []
    for index, commit in enumerate(recent):
        if any(_came_back(rank, recent[:index], recent[index + 1 :]) for rank in commit.absent):
            waits.append(FACTOR * commit.grace_seconds)
        elif len(commit.arrivals) >= least:
            waits.append(commit.arrivals[-1] - commit.arrivals[least - 1])
    return waits


def _came_back(rank: int, before: Sequence[Commit], after: Sequence[Commit]) -> bool:
    """Whether the process that was given up as absent lived: the same one took part before and after."""
    return bool(_processes(rank, before) & _processes(rank, after))


def _processes(rank: int, commits: Sequence[Commit]) -> set[tuple[int, int]]:
    return {
        (member.attempt, member.incarnation) for commit in commits for member in commit.members if member.rank == rank
    }


def _round_seconds(recent: Sequence[Commit]) -> float:
    """The usual time from one commit to the next."""
    moments = [datetime.fromisoformat(commit.committed_at) for commit in recent]
    return median([(later - earlier).total_seconds() for earlier, later in pairwise(moments)])
