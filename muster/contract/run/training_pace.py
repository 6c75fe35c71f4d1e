"""How fast a run trains, and when it will have made all its rounds. Pure.

The replica that commits a round computes the pace from the commits that it has seen. So the newest commit alone is
enough to show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from pydantic import Field

from muster.contract.document import StoredPart
from muster.contract.timestamps import Timestamp, parse, seconds_between

STALLED_FACTOR = 3.0
"""A round that lasts more than so many times the longest of the last ones says nothing about when the run ends."""
STALLED_SECONDS_MIN = 60.0
"""A shorter round has not stalled: one slow request can take this long."""
_DIGITS = 4  # of a rate: more would only make the commits of large runs larger

Rate = float | None


class Pace(StoredPart):
    """The speed of the rounds before a commit, its own included. `samples` are what the trainer counts, or tokens."""

    rounds: int = Field(ge=1, description="how many rounds it was measured over")
    round_seconds: float = Field(ge=0, allow_inf_nan=False, description="the median of their durations")
    longest_seconds: float = Field(ge=0, allow_inf_nan=False, description="the longest of their durations")
    samples_per_second: float = Field(
        ge=0, allow_inf_nan=False, description="of the run: what counted in these rounds, per second of all of them"
    )
    by_rank: tuple[float | None, ...] = Field(
        default=(), description="of each replica, over the rounds that it took part in; none where it was in none"
    )

    def of_replicas(self, replicas: int) -> Pace:
        """The pace with no more ranks than the run has: replicas write it, so it is not trusted."""
        return self.model_copy(update={"by_rank": self.by_rank[:replicas]})


@dataclass(frozen=True)
class TimedRound:
    """A committed round.

    Attributes:
        at: when it was committed.
        weights: the samples or tokens of each member, by rank.
        fragments: into how many fragments the model is cut: each sample counts in the round of each fragment.
    """

    number: int
    at: Timestamp
    weights: dict[int, float]
    fragments: int = 1


def pace_of(rounds: Sequence[TimedRound], replicas: int, began_after: int = 0) -> Pace | None:
    """The pace over these rounds, which are in order. The first one has no beginning: it is only the clock's start.

    Args:
        rounds: some may be missing. A round after a gap is left out.
        replicas: how many the run has.
        began_after: the last round of the run that this run continues. The pause between the two is no round.

    Returns:
        None if no round has a known duration.
    """
    timed = [
        (after, seconds)
        for before, after in pairwise(rounds)
        if after.number == before.number + 1 and not 0 < before.number == began_after
        if (seconds := _seconds(before, after)) is not None
    ]
    total = sum(seconds for _, seconds in timed)
    if not total:
        return None
    samples, present = [0.0] * replicas, [0.0] * replicas
    for round_, seconds in timed:
        for rank, weight in round_.weights.items():
            if rank < replicas:
                samples[rank] += weight / round_.fragments
                present[rank] += seconds
    durations = [seconds for _, seconds in timed]
    return Pace(
        rounds=len(timed),
        round_seconds=round(median(durations), 3),
        longest_seconds=round(max(durations), 3),
        samples_per_second=_short(sum(samples) / total),
        by_rank=tuple(_short(count / time) if time else None for count, time in zip(samples, present, strict=True)),
    )


def end_of(pace: Pace | None, committed_at: Timestamp, rounds_left: int | None, now: datetime) -> datetime | None:
    """When the last round will be committed, if the run keeps its pace; the next round may be overdue.

    Args:
        committed_at: when the latest round was committed.
        rounds_left: None: not known.

    Returns:
        None where that cannot be said: no pace, no known number of rounds, or a run that stalls.
    """
    if pace is None or not rounds_left or rounds_left < 0:
        return None
    try:
        latest = parse(committed_at)
    except ValueError:
        return None
    if has_stalled(pace, (now - latest).total_seconds()):
        return None
    following = max(now, latest + timedelta(seconds=pace.round_seconds))
    try:
        return following + timedelta(seconds=pace.round_seconds * (rounds_left - 1))
    except OverflowError:
        return None


def has_stalled(pace: Pace, waited: float) -> bool:
    """Whether the round that has lasted `waited` seconds takes far longer than those before it."""
    return waited > max(STALLED_FACTOR * pace.longest_seconds, STALLED_SECONDS_MIN)


def _seconds(before: TimedRound, after: TimedRound) -> float | None:
    try:
        return max(0.0, seconds_between(before.at, after.at))
    except (ValueError, TypeError):
        return None


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
