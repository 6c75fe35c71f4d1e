"""The places of an embedded cloud: their endpoints, and what MiniStack needs for borders between them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from types import SimpleNamespace
from typing import Any

from hypercorn.asyncio import serve
from ministack.core import lambda_runtime
from ministack.core.responses import request_scope
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from muster.contract.training.clusters import Clusters
from muster.local.certificate_authority import ServerCertificates, tls_config
from muster.local.cloud_state import PlaceState
from muster.local.ministack.host import Account
from muster.local.process_environment import container_variables
from muster.local.service.option_services import Hosted, ServiceParts
from muster.options.places.local.atlas import Atlas, Place
from muster.options.places.local.borders import administrators, buckets, buses, condition_keys, principals
from muster.options.places.local.domains import Domains
from muster.options.places.local.link_settings import LINK_BYTES, LINKS
from muster.options.places.local.place_links import Links, Pair
from muster.options.places.local.place_port import PlacePort
from muster.options.places.local.place_prices import PriceList
from muster.options.places.local.place_settings import PlacesSettings

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.05
_background: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references


class HostedPlaces:
    """The places of a cloud."""

    def __init__(self, parts: ServiceParts, settings: PlacesSettings) -> None:
        home = parts.host.account
        others = {
            name: Account(place.account_id or home.account_id, place.region) for name, place in settings.places.items()
        }
        self._atlas = Atlas(home, others)
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._links = Links(self._atlas, settings.links, parts.faults)
        self._prices = PriceList(self._atlas, parts.faults)
        self._listeners = {place.name: _listener() for place in self._atlas.others}
        ca_file = parts.state.ca_file
        variables = {name: container_variables(_url(one), ca_file) for name, one in self._listeners.items()}
        self._variables = {self._atlas.home.name: parts.endpoint, **variables}
        self._domains = Domains(self._atlas, self._variables, parts.gateway)

    def start(self) -> Hosted:
        """Set the borders up, and serve the places' endpoints in the loop that runs."""
        condition_keys.install()
        buckets.install()
        principals.install(self._atlas.accounts)
        buses.install(self._when_open)
        _start_functions_in(self._atlas, self._variables)
        certificates = ServerCertificates.at(self._parts.state.ca_file.parent)
        for place in self._atlas.others:
            config = tls_config(self._listeners[place.name], certificates)
            served = serve(self._port(place), config, shutdown_trigger=asyncio.Event().wait)  # type: ignore[arg-type]
            _background.add(asyncio.create_task(served))
        return Hosted(
            operations={},
            clusters=Clusters(),
            running=list,
            front=self._front,
            places={place.name: self._state(place) for place in self._atlas.others},
            routes=self._routes(),
        )

    def _front(self, home: ASGIApp) -> ASGIApp:
        self._domains.open(home)
        return self._port(self._atlas.home)

    def _port(self, place: Place) -> ASGIApp:
        return PlacePort(place, self._atlas, self._links, self._domains, self._prices)

    def _state(self, place: Place) -> PlaceState:
        account, state = place.account, self._parts.state
        if account.account_id == state.account_id:
            key, secret = state.access_key_id, state.secret_access_key
        else:
            made = administrators.create(account, state.secret_access_key)
            key, secret = made.access_key_id, made.secret_access_key
        listener = self._listeners[place.name]
        return PlaceState(
            endpoint=_url(listener),
            port=listener.getsockname()[1],
            region=account.region,
            account_id=account.account_id,
            access_key_id=key,
            secret_access_key=secret,
        )

    def _when_open(self, source: Account, target: Account, deliver: Callable[[], None]) -> None:
        """Deliver an event from one region to another: later, as long as a fault is between them."""
        pair = Pair(*(self._atlas.of(account) or Place("", account) for account in (source, target)))

        def attempt() -> None:
            if self._links.cut(pair, call=False):
                self._loop.call_later(_POLL_SECONDS, attempt, context=Context())
            else:
                with request_scope(source.account_id, source.region):
                    deliver()

        self._loop.call_soon_threadsafe(attempt, context=Context())

    def _routes(self) -> list[Route]:
        async def report(_request: Request) -> Response:
            return Response(LINK_BYTES.dump_json(self._links.report()), media_type="application/json")

        async def reset(_request: Request) -> Response:
            self._links.reset()
            return JSONResponse({})

        async def change(request: Request) -> Response:
            self._links.set(LINKS.validate_json(await request.body()))
            return JSONResponse({})

        return [
            Route("/links", report),
            Route("/links", reset, methods=["DELETE"]),
            Route("/links", change, methods=["PUT"]),
        ]


def _start_functions_in(atlas: Atlas, variables: Mapping[str, Mapping[str, str]]) -> None:
    """Let each function call at the endpoint of its place: it starts with the variables of that, by its name."""
    starts = lambda_runtime.subprocess

    def start(command: Sequence[str], **options: Any) -> Any:
        environment = options.get("env") or {}
        fields = environment.get("_LAMBDA_FUNCTION_ARN", "").split(":")
        place = atlas.of(Account(fields[4], fields[3])) if len(fields) > 4 else None
        own = variables[place.name] if place is not None and place != atlas.home else {}
        return starts.Popen(command, **{**options, "env": {**environment, **own}})

    lambda_runtime.subprocess = SimpleNamespace(**{**vars(starts), "Popen": start})


def _listener() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.bind((_HOST, 0))
    listener.listen(512)
    return listener


def _url(listener: socket.socket) -> str:
    return f"https://{_HOST}:{listener.getsockname()[1]}"
