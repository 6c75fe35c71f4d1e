"""Where the time of replicas goes, as their contributions and the commits say it. Pure.

Each contribution says how the time since the one before was spent. The replica that commits a round adds that up. So
the newest commit alone is enough to say why a run was slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from muster.contract.document import StoredPart


class Activity(StrEnum):
    """What a training loop spends its time on. The order is that of `Spent`: a new one is added at the end."""

    TRAINING = "training"
    WAITING = "waiting"  # for the contributions of other replicas
    EXCHANGING = "exchanging"  # encoding, uploads, downloads, the mean
    SAVING = "saving"  # checkpoints and snapshots
    LOADING = "loading"  # from the start of the process to its first inner step, and when it has to catch up


_ACTIVITIES_MAX = 16  # room for those that later versions add
_MILLISECONDS_MAX = 10**11  # three years
TIME_MAX = 10**16
"""The most milliseconds of a sum, and the most rounds."""

Spent = Annotated[tuple[Annotated[int, Field(ge=0, le=_MILLISECONDS_MAX)], ...], Field(max_length=_ACTIVITIES_MAX)]
"""Milliseconds by activity, in the order of `Activity`; zeros at the end are left out."""


def spent_on(seconds: Mapping[Activity, float]) -> tuple[int, ...]:
    """`seconds` as a contribution holds them."""
    return _trimmed([min(_MILLISECONDS_MAX, max(0, round(seconds.get(one, 0.0) * 1000))) for one in Activity])


def seconds_of(spent: Sequence[int]) -> dict[Activity, float]:
    """The seconds of each activity; those that this version does not know are left out."""
    return {one: value / 1000 for one, value in zip(Activity, spent, strict=False)}


class TimeUse(StoredPart):
    """What the replicas of a run have spent their time on, from the contributions that counted. Replicas write it."""

    rounds: int = Field(ge=0, le=TIME_MAX, description="over how many rounds it was added up")
    spent: tuple[Annotated[int, Field(ge=0, le=TIME_MAX)], ...] = Field(
        default=(), max_length=_ACTIVITIES_MAX, description="milliseconds by activity, all replicas together"
    )
    last: tuple[Annotated[int, Field(ge=0, le=TIME_MAX)], ...] = Field(
        default=(), description="by rank: in how many rounds the others waited for this replica"
    )
    held_up: tuple[Annotated[int, Field(ge=0, le=TIME_MAX)], ...] = Field(
        default=(), description="by rank: for how many milliseconds they did, all others together"
    )

    def of_replicas(self, replicas: int) -> TimeUse:
        """The time use with no more ranks than the run has: replicas write it, so it is not trusted."""
        return self.model_copy(update={"last": self.last[:replicas], "held_up": self.held_up[:replicas]})


@dataclass(frozen=True)
class RoundTimes:
    """What one round adds.

    Attributes:
        spent: of each contribution. The waiting is that of the round before.
        waited_for: for whom this round waited; None: not known.
        waited_before: for whom the round before did.
    """

    spent: Sequence[Sequence[int]]
    waited_for: int | None
    waited_before: int | None


def time_use(before: TimeUse | None, times: RoundTimes) -> TimeUse:
    """The time use with one more round; `before` is None at the first one, and after older versions."""
    start = before or TimeUse(rounds=0)
    spent = [0] * max(len(start.spent), *(len(one) for one in times.spent), 0)
    for values in (start.spent, *times.spent):
        for index, value in enumerate(values):
            spent[index] = min(TIME_MAX, spent[index] + value)
    index = list(Activity).index(Activity.WAITING)
    waited = sum(one[index] for one in times.spent if len(one) > index)
    return TimeUse(
        rounds=min(TIME_MAX, start.rounds + 1),
        spent=_trimmed(spent),
        last=_increased(start.last, times.waited_for, 1),
        held_up=_increased(start.held_up, times.waited_before, waited),
    )


def _increased(values: Sequence[int], rank: int | None, by: int) -> tuple[int, ...]:
    if rank is None or not by:
        return tuple(values)
    longer = [*values, *[0] * (rank + 1 - len(values))]
    longer[rank] = min(TIME_MAX, longer[rank] + by)
    return tuple(longer)


def _trimmed(values: Iterable[int]) -> tuple[int, ...]:
    """Without the zeros at the end."""
    listed = list(values)
    while listed and not listed[-1]:
        listed.pop()
    return tuple(listed)
