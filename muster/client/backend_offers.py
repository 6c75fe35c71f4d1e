"""What the client needs of where options let replicas run, beside SageMaker's training jobs at home.

The seam `client.backend` is that of other services, `client.placement` that of other regions and accounts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from pydantic import JsonValue

from muster.contract.backend import Backend
from muster.options import offers

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud
    from muster.client.aws.reported import Execution
    from muster.client.launch.planned_places import KnownPlace
    from muster.client.logs.log_reader import OtherLogs
    from muster.contract.run.attempt import Attempt
    from muster.contract.run.plan import Plan
    from muster.contract.spec.spec import Spec


@dataclass(frozen=True)
class ClientBackend:
    """A backend of an option. What a call needs is imported when it is called."""

    backend: Backend
    logs: Callable[[Cloud, Execution, Collection[int] | None], OtherLogs]
    """Of those of the asked replicas of a run that are on it; None: all are asked for."""
    attempt_logs: Callable[[Cloud, str, int, str], OtherLogs]
    """Of an attempt: its run, its rank and its cluster."""
    request: Callable[[Plan, int], dict[str, JsonValue]]
    """What the first attempt of a rank creates; some values of a plan are placeholders."""
    remarks: Callable[[Iterable[Spec]], list[str]]
    """Of a dry run, on the specs of all ranks."""
    shortened: Callable[[], Mapping[str, str]]
    """Texts in a request that would fill a screen, and what is shown instead."""


def client_backends() -> dict[Backend, ClientBackend]:
    """The backends of the options that are there."""
    return {offer.backend: offer for offer in offers("client.backend", ClientBackend)}


@dataclass(frozen=True)
class ClientPlacement:
    """Places beside home. What a call needs is imported when it is called."""

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
