"""The seam `local.service`: services of AWS that options add to the embedded cloud, each with jobs of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from muster.contract.training.clusters import Clusters
from muster.local.cloud_state import CloudState, PlaceState
from muster.options import offers

if TYPE_CHECKING:
    # MiniStack must not be imported before its environment is set.
    from muster.local.counted_calls import Call, CallLog
    from muster.local.ministack.host import Account, Host
    from muster.local.processes.process_pool import ProcessPool
    from muster.local.sagemaker.service_errors import Operation
    from muster.local.service.fault_book import FaultBook
    from muster.local.service.http_request import EndpointRequest

Right = tuple[str, str, Mapping[str, object]]
"""Action, resource and condition keys."""


@dataclass(frozen=True)
class ServiceParts:
    """What of the cloud a service needs."""

    code: tuple[Path, ...]
    """Directories in the image of a container (`cloud_settings.Settings.code`)."""
    host: Host
    processes: ProcessPool
    faults: FaultBook
    calls: CallLog
    place: Path
    """The service's own folder."""
    endpoint: Mapping[str, str]
    """Environment variables with which a container reaches the services."""
    state: CloudState
    """How the cloud's own endpoint is reached."""
    gateway: Callable[[Account, str, Mapping[str, str]], ASGIApp]
    """Makes, once the cloud's own `service.gateway.Gateway` is there, that of another account or region: where faults
    of the place of this name fire, and whose jobs get these variables."""


def _nothing_in_front(_gateway: ASGIApp) -> ASGIApp | None:
    return None


@dataclass(frozen=True)
class Hosted:
    """A service that runs."""

    operations: Mapping[str, Operation]
    """Its operations of SageMaker, by their names."""
    clusters: Clusters
    """Its clusters, as a stack has to know them."""
    running: Callable[[], list[str]]
    """Its jobs that have not ended, as `namespace/name`."""
    front: Callable[[ASGIApp], ASGIApp | None] = _nothing_in_front
    """Given the cloud's own gateway: what serves its endpoint instead, if anything."""
    places: Mapping[str, PlaceState] = field(default_factory=dict)
    """How other places than the cloud's own are reached."""
    routes: Sequence[BaseRoute] = ()
    """Its part of the interface under `/_muster/`."""


@dataclass(frozen=True)
class OptionService:
    """A service that an option adds. MiniStack is adapted for it in each cloud; it runs only where its settings are."""

    name: str
    """Of its settings, and of the flag of `muster local up` that asks for it."""
    help: str
    """Of that flag."""
    settings: type[BaseModel]
    options: Mapping[str, str]
    """The settings that are options of `muster local up`, with the options' names."""
    adapt: Callable[[Account], None]
    """Brings MiniStack closer to AWS."""
    rights: Callable[[EndpointRequest, Call, Account], Awaitable[Sequence[Right]]]
    """What the caller of a request to MiniStack needs beside the right to the call, which MiniStack checks."""
    host: Callable[[ServiceParts, BaseModel], Hosted]
    """Starts it, in the event loop that runs."""


def option_services() -> dict[str, OptionService]:
    """The services of the options that are there, by their names."""
    return {service.name: service for service in offers("local.service", OptionService)}
