"""Whether a replica is slower than the others, by the seconds and samples of its contributions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from muster.contract.run.commit import Commit, Member
from muster.contract.spec.watch_rules import Slow


def slower_than_others(rule: Slow, member: tuple[int, int], recent: Sequence[Commit]) -> str | None:
    """Why the replica is slow; None if it is not, or if too little is known.

    Args:
        member: rank and epoch of its claim. An earlier process may have run on another machine.
        recent: the commits of the last rounds, oldest first.
    """
    last = recent[-rule.rounds :]
    paces = [_paces(commit, member) for commit in last]
    known = [pace for pace in paces if pace is not None]
    if len(known) < rule.rounds or any(own <= rule.factor * others for own, others in known):
        return None
    own, others = known[-1]
    times = f"{own / others:.1f} times the median of the others, {others:.3g} s"
    rounds = "the last round" if rule.rounds == 1 else f"each of the last {rule.rounds} rounds"
    return f"it takes {own:.3g} s for a sample, {times}; in {rounds} it took more than {rule.factor:g} times as long"


def _paces(commit: Commit, own: tuple[int, int]) -> tuple[float, float] | None:
    """Seconds per sample of the replica, and the median of the others."""
    mine = [pace for one in commit.members if (one.rank, one.epoch) == own and (pace := _pace(one)) is not None]
    others = [pace for one in commit.members if one.rank != own[0] and (pace := _pace(one)) is not None]
    return (mine[0], median(others)) if mine and others else None


def _pace(member: Member) -> float | None:
    return None if not member.seconds else member.seconds / member.weight
