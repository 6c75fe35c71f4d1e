"""The seam `client.placement`: what a client says of places beside home."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pydantic import JsonValue

from muster.client.launch.planned_places import KnownPlace
from muster.contract.run.plan import Plan
from muster.contract.spec.spec import Spec
from muster.options import offers

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud
    from muster.client.logs.log_reader import OtherLogs
    from muster.contract.run.attempt import Attempt


@dataclass(frozen=True)
class ClientPlacement:
    """What the option offers. What a call needs is imported when it is called."""

    known: Callable[[Cloud, Spec], dict[str, KnownPlace]]
    """The places of the stack that the spec names, and what AWS says of them to this caller."""
    logs: Callable[[Cloud, str, Callable[[], Mapping[int, Iterable[Attempt]]]], OtherLogs]
    """Of the attempts of a run that were elsewhere; they are looked at with the function that is given."""
    request: Callable[[Plan, int, Mapping[str, KnownPlace]], dict[str, JsonValue]]
    """What the first attempt of a rank sends; without a place's address some values are placeholders."""


@cache
def client_placement() -> ClientPlacement | None:
    """That of the option; None where it is not there."""
    return next(offers("client.placement", ClientPlacement), None)
