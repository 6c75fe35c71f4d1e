"""The grace window: how long a quorum waits for the others, learnt from the arrivals of the last rounds. Pure.

All times are differences on the store's clock, as the commits record them; the replicas' own clocks do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from muster.contract import timestamps
from muster.contract.run.commit import Commit
from muster.replica.rounds.quorum import STORE_TIME_SECONDS, Quorum

ROUNDS_SEEN = 16  # enough for a quantile, few enough to follow a change
ROUNDS_MIN = 3  # with fewer the longest window applies
QUANTILE = 0.9
# A window twice as long as nine in ten rounds needed tolerates short delays.
FACTOR = 2.0
# A lost contribution costs its sender a whole round, but a short wait costs the others little: a tenth of a round is
# cheap.
ROUND_FRACTION = 0.1


def grace_window(quorum: Quorum, recent: Sequence[Commit]) -> float:
    """Seconds for which a quorum waits for the other expected ones.

    Args:
        quorum: has the upper bound (rendezvous.grace_seconds), which is the window of the first rounds.
        recent: the last rounds' commits, oldest first.
    """
    longest_seconds, waits = quorum.grace_seconds, sorted(_waits(quorum, recent[-ROUNDS_SEEN:]))
    if len(waits) < ROUNDS_MIN:
        return longest_seconds
    usual = waits[min(len(waits) - 1, int(QUANTILE * len(waits)))]
    # A wait of zero by the store's clock may have been one of a second.
    learnt = max(FACTOR * max(usual, STORE_TIME_SECONDS), ROUND_FRACTION * _round_seconds(recent))
    return min(longest_seconds, learnt)


def _waits(quorum: Quorum, recent: Sequence[Commit]) -> list[float]:
    """How long each round waited after its quorum was reached, or should have waited."""
    waits = []
    for index, commit in enumerate(recent):
        if any(_came_back(rank, recent[:index], recent[index + 1 :]) for rank in commit.absent):
            waits.append(FACTOR * commit.grace_seconds)
            continue
        needed = quorum.wanted(len(commit.named) + len(commit.absent), len(commit.finished))
        if len(commit.arrivals) >= needed:
            waits.append(commit.arrivals[-1] - commit.arrivals[needed - 1])
    return waits


def _came_back(rank: int, before: Sequence[Commit], after: Sequence[Commit]) -> bool:
    """Whether an absent process was alive: the same one took part before and after."""
    return bool(_processes(rank, before) & _processes(rank, after))


def _processes(rank: int, commits: Sequence[Commit]) -> set[tuple[int, int]]:
    return {
        (member.attempt, member.incarnation) for commit in commits for member in commit.members if member.rank == rank
    }


def _round_seconds(recent: Sequence[Commit]) -> float:
    """The usual time from one commit to the next."""
    times = [timestamps.parse(commit.committed_at) for commit in recent]
    return median([(later - earlier).total_seconds() for earlier, later in pairwise(times)])
