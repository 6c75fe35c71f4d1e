"""The seats of an elastic run as people see them, and the seam `contract.seat_states` for their document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from pydantic import Field

from muster.contract.document import Document
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Decision
from muster.contract.spec.elastic import ASKED_BY, SeatLimits
from muster.contract.timestamps import Timestamp, seconds_between
from muster.contract.training.ranks import parse_ranks


class SeatState(StrEnum):
    """Where a seat stands."""

    TRAINING = "training"
    STARTING = "starting"  # its job is launched, or will be
    WAITING = "waiting"  # for capacity or quota
    LEAVING = "leaving"  # it is not wanted any more, and its job has not ended yet
    ENDED = "ended"  # its replica has finished, or was stopped
    LOST = "lost"  # its replica failed, and its reruns are used up
    PARKED = "parked"  # it is not wanted, and costs nothing


class SeatGroup(Document):
    """The seats that are in the same state for the same reason."""

    state: SeatState
    ranks: str = Field(description="such as `8-9999`")
    count: int
    reason: str = Field(default="", description="what they wait for, or why they are parked or lost")
    until: Timestamp | None = Field(default=None, description="while they wait: when the first one looks again")


class SeatChange(Document):
    """A time at which another number of replicas was wanted."""

    at: Timestamp
    replicas: int = Field(description="wanted from then on")
    opened: str = Field(default="", description="the ranks that were opened")
    closed: str = Field(default="", description="the ranks that were closed")
    by: str = Field(description=ASKED_BY)


class SeatsView(Document):
    """The seats of an elastic run: how many are wanted, and where each stands."""

    least: int = Field(description="replicas.min of the spec")
    start: int = Field(description="replicas.start")
    most: int = Field(description="replicas.max")
    wanted: int
    present: int = Field(description="how many train")
    open: str = Field(description="the ranks that are wanted, such as `0-7`")
    groups: tuple[SeatGroup, ...] = Field(description="every seat is in one of them")
    changes: tuple[SeatChange, ...] = Field(default=(), description="the last ones, oldest first")
    ended: str | None = Field(default=None, description="why no seat is opened any more; none while seats may be")

    def states(self) -> dict[int, SeatState]:
        """The state of every seat by its rank."""
        return {rank: one.state for one in self.groups for part in parse_ranks(one.ranks) for rank in part}

    def parked_seconds(self, rank: int, begin: str, end: str) -> float:
        """For how much of the time from `begin` to `end` the seat was not wanted."""
        is_open, until, seconds = _names(self.open, rank), end, 0.0
        for change in reversed(self.changes):
            at = min(max(begin, change.at), until)
            seconds += 0.0 if is_open else seconds_between(at, until)
            until = at
            is_open = (is_open or _names(change.closed, rank)) and not _names(change.opened, rank)
        return seconds if is_open else seconds + seconds_between(begin, max(begin, until))


class SeatRecord(NamedTuple):
    """What is known of a seat that has been launched."""

    attempts: Sequence[Attempt]
    decision: Decision | None


@dataclass(frozen=True)
class SeatDocument:
    """How the option of elastic runs stores seats: its `OFFER` for the seam `contract.seat_states`."""

    key: Callable[[str], str]
    """Of a run's document in the bucket."""
    view: Callable[[bytes | None, str, SeatLimits, Mapping[int, SeatRecord], bool], SeatsView]
    """The seats by the document (None: none is written yet), the run's name, the limits, what is known of each rank
    that has been launched, and whether the run has ended."""


def seat_document() -> SeatDocument | None:
    """What the option offers; None in an installation without it."""
    from muster.options import offers  # noqa: PLC0415 - few runs have such seats

    return next(offers("contract.seat_states", SeatDocument), None)


@lru_cache(maxsize=256)
def _parts(text: str) -> tuple[range, ...]:
    return tuple(parse_ranks(text)) if text else ()


def _names(text: str, rank: int) -> bool:
    return any(rank in part for part in _parts(text))
