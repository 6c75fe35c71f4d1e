"""The application at the endpoint of a place.

A client is in the place at whose endpoint it calls: a job's variables name that of the job's place. Where a call goes
is what the signature says, as the SDKs sign for the region whose endpoint they would call on AWS. So a program
reaches another region as on AWS, by a client of that region, and names no endpoint.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from urllib.parse import unquote

from hypercorn.events import Closed
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from muster.local.cloud_state import OBSERVER_HEADER
from muster.local.counted_calls import Call
from muster.local.ministack import callers
from muster.local.ministack.host import Account, bucket_home, object_size
from muster.local.sagemaker.role_clients import PLATFORM_SESSION
from muster.local.sagemaker.service_errors import ServiceError
from muster.local.service.gateway import Gateway, error_answer, refuse_unread
from muster.local.service.http_request import EndpointRequest, break_off
from muster.local.service.recognition import object_of, recognise, signed_region
from muster.options.places.local import place_prices
from muster.options.places.local.atlas import Atlas, Place
from muster.options.places.local.borders import buckets, sessions
from muster.options.places.local.domains import Domains
from muster.options.places.local.place_links import Links, Pair
from muster.options.places.local.place_prices import PriceList

_GLOBAL = frozenset({"iam"})  # served from everywhere, though signed for one region
_COPIES = frozenset({"CopyObject", "UploadPartCopy"})
_SPAN = re.compile(r"bytes=(\d+)-(\d+)")
_DONE = 200
_REGION_HEADER = "x-amz-bucket-region"  # without it, an SDK asks for the region again and again


@dataclass(frozen=True)
class PlacePort:
    """An ASGI application."""

    place: Place
    atlas: Atlas
    links: Links
    domains: Domains
    prices: PriceList

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        home = self.domains.home
        if scope["type"] == "lifespan" and self.place != self.atlas.home:
            await _live(receive, send)
        elif scope["type"] != "http" or home.admin.owns(scope["path"]):
            await home(scope, receive, send)
        else:
            try:
                await self._serve(EndpointRequest(scope, receive), send)
            except ClientDisconnect:
                return

    async def _serve(self, request: EndpointRequest, send: Send) -> None:
        call = await recognise(request)
        account = self._served_in(request)
        gateway = self.domains.gateway(account)
        pair = Pair(self.place, self.atlas.of(account) or self.place)
        watches = gateway.admin.knows(request.headers.get(OBSERVER_HEADER, ""))
        if call.service not in _GLOBAL and not watches:
            if fault := self.links.cut(pair, call=True):
                await asyncio.sleep(fault.silent_seconds)
                await _hang_up(send)
                return
            if latency := self.links.latency(pair):
                await asyncio.sleep(latency)
        try:
            await self._check(request, call, account)
        except ServiceError as error:
            answer = error_answer(call, error)
            if (home := bucket_home(object_of(request)[0])) is not None and call.service == "s3":
                answer.headers[_REGION_HEADER] = home.region
            await refuse_unread(request, answer, send)
            return
        if request.headers.get("x-amz-target") == place_prices.TARGET:
            response = await gateway.answer_here(request, call, self.prices.get_products)
            await response(request.scope, request.receive, send)
            return
        if call.service == "s3":
            buckets.begin(call.operation)
        if call.service == "s3" and not watches:
            await self._transfer(request, call, gateway, send)
        else:
            await gateway(request.scope, request.replay, send)

    def _served_in(self, request: EndpointRequest) -> Account:
        """The account and region that answer a request."""
        account_id = callers.account_of(callers.access_key_of(request)) or self.atlas.home.account.account_id
        region = signed_region(request)
        return Account(account_id, region if self.atlas.in_region(region) else self.place.account.region)

    async def _check(self, request: EndpointRequest, call: Call, account: Account) -> None:
        """Refuse what is refused at a border.

        Raises:
            ServiceError: why.
        """
        access_key = callers.access_key_of(request)
        if call.service == "sts" or call.operation == "AssumeRole":
            await sessions.check(request, account)
        elif call.service == "s3" and callers.caller_of(access_key)[1] == PLATFORM_SESSION:
            home = bucket_home(object_of(request)[0])
            if home is not None and home.region != self.place.account.region:
                # SageMaker reads and writes buckets of the job's own region only.
                raise _other_endpoint()

    async def _transfer(self, request: EndpointRequest, call: Call, gateway: Gateway, send: Send) -> None:
        """Serve a call of S3, whose bodies go over the link to the bucket's place."""
        home = bucket_home(object_of(request)[0])
        place = self.atlas.of(home) if home else None
        if home is None or place is None or home.region != gateway.account.region:
            await gateway(request.scope, request.replay, send)
            return
        if call.operation in _COPIES:
            send = self._copying(request, place, send)
        if place == self.place:
            await gateway(request.scope, request.replay, send)
            return
        pair = Pair(self.place, place)
        await gateway(request.scope, self.links.incoming(request.replay, pair), self.links.outgoing(send, pair.back))

    def _copying(self, request: EndpointRequest, target: Place, send: Send) -> Send:
        """A `send` before whose answer a copy goes from its source's place to `target`."""
        named = unquote(request.headers.get("x-amz-copy-source", "").partition("?")[0]).lstrip("/")
        bucket, _, key = named.partition("/")
        home = bucket_home(bucket)
        source = self.atlas.of(home) if home else None
        span = _SPAN.fullmatch(request.headers.get("x-amz-copy-source-range", ""))
        size = int(span[2]) + 1 - int(span[1]) if span else object_size(bucket, key)

        async def copied(message: Message) -> None:
            if source is not None and source != target and message.get("status") == _DONE:
                await self.links.carry(Pair(source, target), size)
            await send(message)

        return copied


def _other_endpoint() -> ServiceError:
    """S3's answer to a request for a bucket of another region."""
    message = (
        "The bucket you are attempting to access must be addressed using the specified endpoint. Please send all "
        "future requests to this endpoint."
    )
    return ServiceError("PermanentRedirect", message, 301)


async def _hang_up(send: Send) -> None:
    """End the connection of a request without an answer.

    ASGI has no message for it: this reaches for the server's protocol, whose method `send` is bound to.
    """
    stream = getattr(send, "__self__", None)
    if stream is None:
        await break_off(send)
    else:
        await stream.send.__self__.send(Closed())


async def _live(receive: Receive, send: Send) -> None:
    """The life of an application that has nothing to start and nothing to end."""
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})
