"""The seats of an elastic run: how many are wanted, and which ranks are open. Pure.

One document, written by compare-and-swap. A rank is *open* where its seat is wanted, and parked otherwise: the workflow
of a parked seat waits for a task token, which is kept beside (`ParkedSeat`).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from functools import lru_cache
from typing import Self

from pydantic import Field

from muster.contract import timestamps
from muster.contract.document import StoredDocument, StoredPart
from muster.contract.layout import RunLayout
from muster.contract.spec.elastic import ASKED_BY
from muster.contract.timestamps import Timestamp
from muster.contract.training.ranks import ranks_in, show_ranks

SCALINGS_KEPT = 50
REFUSALS_KEPT = 10
UNCHANGED_KEPT = 50


def seats_key(run: str) -> str:
    """The key of a run's `Seats`."""
    return RunLayout(run).seats


def parked_prefix(run: str) -> str:
    """The prefix of the task tokens of a run's parked seats."""
    return RunLayout(run).parked


def parked_key(run: str, rank: int) -> str:
    """The key of the task token of a parked seat."""
    return f"{parked_prefix(run)}{rank}.json"


class Scaling(StoredPart):
    """One change of the number that is wanted."""

    at: Timestamp
    replicas: int = Field(ge=1, description="wanted from then on")
    opened: str = Field(default="", description="the ranks that were opened; they launch one after another from `at`")
    closed: str = Field(default="", description="the ranks that were closed")
    by: str = Field(description=f"{ASKED_BY}; one request is carried out once")
    revision: int = Field(ge=1, description="of the seats after it")
    before: int = Field(ge=1, description="how many were wanted before")
    per_second: int = Field(ge=1, description="how many of the opened ranks are launched in a second")

    def slot(self, rank: int) -> Timestamp:
        """When `rank`, one of those that were opened, may be launched."""
        place = _places(self.opened)[rank]
        return timestamps.text(timestamps.parse(self.at) + timedelta(seconds=place / self.per_second))


class Refusal(StoredPart):
    """A request that changed nothing. Whoever asked finds the reason here."""

    by: str = Field(description="who asked, as of a change")
    reason: str


class Seats(StoredDocument):
    """The seats of a run."""

    run: str
    revision: int = Field(default=1, ge=1, description="grows with every change")
    wanted: int = Field(ge=1)
    open: str = Field(description="the open ranks, such as `0-7`")
    scalings: tuple[Scaling, ...] = Field(default=(), description="the last changes, oldest first")
    refusals: tuple[Refusal, ...] = Field(default=(), description="the last requests that were refused, oldest first")
    unchanged: tuple[str, ...] = Field(
        default=(), description="who asked for as many as were wanted: the last requests that changed nothing"
    )
    asked_at: Timestamp | None = Field(
        default=None,
        description="when the newest request was made that was not refused; none before it. Older ones come too late",
    )
    ended: str | None = Field(default=None, description="why no seat is opened any more; none while seats may be")

    @classmethod
    def first(cls, run: str, start: int) -> Self:
        """Those of a run that has not been scaled."""
        return cls(run=run, wanted=start, open=show_ranks(range(start)))

    @property
    def open_ranks(self) -> frozenset[int]:
        """The ranks that are open."""
        return ranks_in(self.open)

    def opening(self, rank: int) -> Scaling | None:
        """The change that has opened a rank; None where it is open since the launch, or for a long time."""
        return next((one for one in reversed(self.scalings) if rank in ranks_in(one.opened)), None)

    def ended_by(self, reason: str) -> Self:
        """These seats once none is opened any more; the first reason stays."""
        if self.ended is not None:
            return self
        return self.model_copy(update={"revision": self.revision + 1, "ended": reason})

    def refused(self, refusal: Refusal) -> Self:
        """These seats, with the answer to a request that has changed nothing."""
        others = [one for one in self.refusals if one.by != refusal.by]
        return self.model_copy(update={"refusals": (*others, refusal)[-REFUSALS_KEPT:]})

    def kept(self, by: str) -> Self:
        """These seats, after a request for as many as are wanted."""
        return self.model_copy(update={"unchanged": (*self.unchanged, by)[-UNCHANGED_KEPT:]})

    def asked(self, at: Timestamp) -> Self:
        """These seats, after a request that was made at `at` and was not refused."""
        return self.model_copy(update={"asked_at": max(at, self.asked_at or at)})

    def scaled(self, scaling: Scaling) -> Self:
        """These seats after `scaling`."""
        ranks = (self.open_ranks | ranks_in(scaling.opened)) - ranks_in(scaling.closed)
        return self.model_copy(
            update={
                "revision": scaling.revision,
                "wanted": scaling.replicas,
                "open": show_ranks(sorted(ranks)),
                "scalings": (*self.scalings, scaling)[-SCALINGS_KEPT:],
            }
        )


class ParkedSeat(StoredDocument):
    """A seat whose workflow waits."""

    run: str
    rank: int = Field(ge=0)
    attempt: int = Field(ge=1, description="the attempt to launch once the seat is wanted")
    token: str
    armed_at: str = Field(description="as in the record: a later token replaces it")
    reason: str = Field(description="why it waits")
    until: Timestamp | None = Field(
        default=None, description="when a seat without capacity looks again; none while it is not wanted"
    )


@lru_cache(maxsize=64)
def _places(ranks: str) -> dict[int, int]:
    """The place of each of `ranks` among them."""
    return {rank: place for place, rank in enumerate(sorted(ranks_in(ranks)))}


def opened(seats: Seats, replicas: int, wanted: int, avoided: Collection[int] = ()) -> list[int]:
    """The ranks to open so that `wanted` are: the lowest ones, of `avoided` (lost replicas) none."""
    ranks, out = seats.open_ranks, set(avoided)
    free = [rank for rank in range(replicas) if rank not in ranks and rank not in out]
    return free[: max(0, wanted - len(ranks - out))]
