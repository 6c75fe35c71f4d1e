"""The seam `client.scaling`: how an option changes the number of a run's replicas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import Field

from muster.client.client_errors import ScaleError
from muster.contract.document import Document
from muster.contract.run.seat_states import SeatsView
from muster.options import offers

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud


class Scaled(Document):
    """Another number of replicas, which is wanted from now on."""

    run: str
    replicas: int = Field(description="how many are wanted")
    asked: int = Field(description="how many were asked for; `elastic.budget_usd_per_hour` may pay for fewer")
    before: int = Field(description="how many were wanted before")
    opened: str = Field(default="", description="the ranks that are launched, such as `8-15`; empty for none")
    closed: str = Field(default="", description="the ranks that leave, such as `2,5`; empty for none")
    request: str = Field(description="the id of the event that asked for it")
    seats: SeatsView | None = Field(default=None, description="where the seats stand; none where it was not waited for")


@dataclass(frozen=True)
class ScaleOffer:
    """What an option offers that scales runs."""

    scale: Callable[[Cloud, str, int, bool], Scaled]
    """Of a run, to so many replicas; and whether to wait until all have come and left."""


def scale(cloud: Cloud, run: str, replicas: int, *, wait: bool) -> Scaled:
    """Scale a run; see `Muster.scale`."""
    offer = next(offers("client.scaling", ScaleOffer), None)
    if offer is None:
        raise ScaleError(run, "this installation of Muster has no elastic runs")
    return offer.scale(cloud, run, replicas, wait)
