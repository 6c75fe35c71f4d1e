"""What the commits of the last rounds say of a replica: an unusual loss, divergent updates, its pace. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from muster.contract.run.commit import Commit, Member
from muster.contract.run.round_values import UPDATE_COSINE
from muster.contract.spec.watch_rules import Divergence, Loss, Slow
from muster.replica.statistics.statistics import OwnUpdate

# Of fewer rounds a jump says little: the loss falls quickly at the beginning.
ROUNDS_MIN = 3
# Of two replicas that disagree, neither is the one that diverges.
OTHERS_MIN = 2
_UNKNOWN = OwnUpdate(0, None, None)


def unusual_loss(rule: Loss, value: float | None, recent: Sequence[Commit]) -> str | None:
    """What is unusual about `value`, the loss that the replica has logged last; None if nothing is.

    Args:
        recent: the commits of the last rounds, with the losses of all their members.
    """
    if value is None:
        return None
    name = f"its metric {rule.metric}"
    if not math.isfinite(value):
        return f"{name} is {value}"
    before = [
        [member.metrics[rule.metric] for member in commit.members if rule.metric in member.metrics] for commit in recent
    ]
    rounds = [values for values in before if values]
    if len(rounds) < ROUNDS_MIN:
        return None
    usual = median(value for values in rounds for value in values)
    # A multiple says nothing of a loss that may be 0 or less.
    if usual <= 0 or value <= rule.factor * usual:
        return None
    times = f"{rule.factor:g} times the median of the last {len(rounds)} rounds"
    return f"{name}, {value:.6g}, is more than {times}, {usual:.6g}"


def divergent(rule: Divergence, rank: int, own: Sequence[OwnUpdate], recent: Sequence[Commit]) -> str | None:
    """How the updates of replica `rank` diverge from the others'; None if they do not, or if too little is known.

    Args:
        own: its updates, also of rounds that were made without it.
        recent: the commits of the last rounds: each has the norms of its round, and the cosines of the one before.
    """
    last, updates = recent[-rule.rounds :], {one.round: one for one in own}
    if len(last) < rule.rounds:
        return None
    norms, cosines = [], []
    for commit in last:
        others = [member for member in commit.members if member.rank != rank]
        now, before = (updates.get(round_, _UNKNOWN) for round_ in (commit.round, commit.round - 1))
        norms.append(_beside(now.norm, [one.norm for one in others]))
        cosines.append(_agreement(rank, before, others))
    rounds = "in the last round" if rule.rounds == 1 else f"in each of the last {rule.rounds} rounds"
    if all(mine > rule.factor * usual > 0 for mine, usual in norms):
        mine, usual = norms[-1]
        times = f"{mine / usual:.1f} times the median of the others, {usual:.3g}"
        return (
            f"the norm of its update, {mine:.3g}, is {times}; {rounds} it was more than {rule.factor:g} times as large"
        )
    if all(mine < rule.cosine <= usual for mine, usual in cosines):
        mine, usual = cosines[-1]
        found = f"the cosine of its update with the others' is {mine:.3g}, of theirs with each other {usual:.3g}"
        return f"{found}; {rounds} it was below {rule.cosine:g}, and theirs was not"
    return None


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


def slow_process(rule: Slow, recent: Sequence[Sequence[float]]) -> str | None:
    """Which process of the replica is slower than its peers; None if none is, or if too little is known.

    Args:
        recent: for the last rounds, oldest first, the seconds for which each process has worked. Those that wait for
            each other in every step have the same.
    """
    last = recent[-rule.rounds :]
    if len(last) < rule.rounds or any(len(seconds) < 2 for seconds in last):
        return None
    newest = last[-1]
    slowest = max(range(len(newest)), key=newest.__getitem__)
    times = [_times(seconds, slowest) for seconds in last]
    if any(multiple <= rule.factor for multiple in times):
        return None
    rounds = "the last round" if rule.rounds == 1 else f"each of the last {rule.rounds} rounds"
    found = f"process {slowest} of {len(newest)} has worked {newest[slowest]:.3g} s on the last round"
    more = f"{times[-1]:.1f} times the median of the others"
    return f"{found}, {more}; in {rounds} it took more than {rule.factor:g} times as long"


def _beside(mine: float | None, others: Sequence[float | None]) -> tuple[float, float]:
    """A value, and the median of the others'; NaN where too few are known."""
    known = [one for one in others if one is not None]
    return (math.nan, math.nan) if mine is None or len(known) < OTHERS_MIN else (mine, median(known))


def _agreement(rank: int, own: OwnUpdate, others: Sequence[Member]) -> tuple[float, float]:
    """The cosine of replica `rank` with the others of a round, and theirs with each other; NaN where too few are known.

    What each of them has logged is its average with all, by pull. Of few replicas, one that goes the other way makes it
    as negative as its own, so its share is taken out. Of its cosine with each of them only the average is known, its
    own. With that, the average of what is left is exact: it is that of all pairs of the others. Their median is not,
    but one of them cannot raise it alone; so both must be high.
    """
    mine, all_ = own.pulls.get(rank, 0.0), math.fsum(pull for one, pull in own.pulls.items() if one != rank)
    found, sums, rests = [], [], []
    for other in others:
        logged, pull = other.logged_before(UPDATE_COSINE), own.pulls.get(other.rank, 0.0)
        rest = all_ - pull
        if logged is None or own.cosine is None or (mine and rest <= 0):
            continue
        cosine = max(-1.0, min(1.0, logged))
        left = cosine * (rest + mine) - own.cosine * mine
        found.append(left / rest if mine else cosine)
        sums.append(pull * left)
        rests.append(pull * rest)
    own_cosine, middle = _beside(own.cosine, found)
    every = math.fsum(rests)
    return own_cosine, min(middle, math.fsum(sums) / every) if every > 0 else middle


def _times(seconds: Sequence[float], process: int) -> float:
    """How many times as long as the median of the others a process has worked."""
    others = median([*seconds[:process], *seconds[process + 1 :]])
    return seconds[process] / others if others else 0.0


def _paces(commit: Commit, own: tuple[int, int]) -> tuple[float, float] | None:
    """Seconds per sample of the replica, and the median of the others."""
    mine = [pace for one in commit.members if (one.rank, one.epoch) == own and (pace := _pace(one)) is not None]
    others = [pace for one in commit.members if one.rank != own[0] and (pace := _pace(one)) is not None]
    return (mine[0], median(others)) if mine and others else None


def _pace(member: Member) -> float | None:
    return None if not member.seconds else member.seconds / member.weight
