"""The one application at the endpoint: training and the admin interface in front of MiniStack's services.

Every request is recognised, counted and compared with the faults; then the service that it is for answers.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from xml.sax.saxutils import escape

from ministack.app import app as ministack_application
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from muster.local.cloud_state import OBSERVER_HEADER
from muster.local.counted_calls import Call
from muster.local.faults import CallError, throttled
from muster.local.ministack import callers
from muster.local.ministack.host import Account, bucket_home
from muster.local.sagemaker import service_errors
from muster.local.sagemaker.role_clients import PLATFORM_SESSION
from muster.local.sagemaker.service_errors import Caller, Operation, ServiceError
from muster.local.sagemaker.training_service import SERVICE_PRINCIPAL, TrainingService
from muster.local.service import emulated_quotas, request_checks
from muster.local.service.admin_api import AdminApi, Books
from muster.local.service.http_request import EndpointRequest, break_off, discard
from muster.local.service.option_services import OptionService, Right
from muster.local.service.recognition import object_of, recognise, resources, signed_region

# MiniStack answers these to every caller: its own interface, the metadata and credentials of instances and containers,
# an image registry, the pages of user pools. Only its health and what CloudFormation calls back stay reachable.
_INTERNAL = ("/_ministack/", "/_localstack/", "/_aws/", "/latest/", "/v2/", "/v4/", "/oauth2/")
_INTERNAL_PAGES = frozenset({"/login", "/logout", "/graphql", "/health"})
_HEALTH = "/_ministack/health"
_CALLBACKS = ("/_ministack/cfn-response/", "/_ministack/cfn-signal/")
_OF_THE_BODY = frozenset({b"content-length", b"content-type", b"transfer-encoding"})
_JSON = "application/x-amz-json-1.1"
_XML_SERVICES = frozenset({"s3", "iam", "sts", "cloudformation", "sqs", "sns"})


@dataclass(frozen=True)
class Gateway:
    """An ASGI application."""

    account: Account
    training: TrainingService
    admin: AdminApi
    books: Books
    services: Sequence[OptionService] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] == "lifespan":
            await ministack_application(scope, receive, send)
            return
        if scope["type"] != "http":  # a WebSocket, whose caller nobody checks
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            await self._serve(EndpointRequest(scope, receive), send)
        except ClientDisconnect:
            return

    async def _serve(self, request: EndpointRequest, send: Send) -> None:
        if self.admin.owns(request.path):
            await self.admin(request.scope, request.receive, send)
        elif _needs_no_signature(request):
            await ministack_application(_without_caller(request.scope), request.replay, send)
        elif request.path.startswith(_INTERNAL) or request.path in _INTERNAL_PAGES:
            message = f"The embedded cloud keeps the path {request.path} for itself: no bucket can have this name."
            refused = error_answer(await recognise(request), callers.refused("AccessDenied", message))
            await refused(request.scope, request.receive, send)
        else:
            await self._serve_call(request, await recognise(request), send)

    async def _serve_call(self, request: EndpointRequest, call: Call, send: Send) -> None:
        access_key = callers.access_key_of(request)
        if refusal := await _stranger_refusal(request, call, access_key):
            await error_answer(call, refusal)(request.scope, request.receive, send)
            return
        role, session = callers.caller_of(access_key)
        caller = SERVICE_PRINCIPAL if session == PLATFORM_SESSION else role
        self.books.calls.add(call, caller)
        try:
            await request_checks.check(call, request, self._owner(request, call))
        except ServiceError as error:
            await refuse_unread(request, error_answer(call, error), send)
            return
        fault = self.books.faults.take_call(call, caller, await resources(request, call))
        if fault is None and not self.admin.knows(request.headers.get(OBSERVER_HEADER, "")):
            fault = None if self.books.rates.allows(call) else throttled(call.service, call.operation)
        if fault is None or fault.after_effect:
            await self._answer(request, call, send if fault is None else discard)
        if fault is None:
            return
        if fault.disconnect:
            await break_off(send)
            return
        answer = error_answer(call, fault)
        if fault.after_effect:  # what was served has been read to its end
            await answer(request.scope, request.receive, send)
        else:
            await refuse_unread(request, answer, send)

    def _owner(self, request: EndpointRequest, call: Call) -> str:
        """The account that owns what a request is about: a bucket may be another one's."""
        home = bucket_home(object_of(request)[0]) if call.service == "s3" else None
        return (home or self.account).account_id

    async def _answer(self, request: EndpointRequest, call: Call, send: Send) -> None:
        target = request.headers.get("x-amz-target", "")
        if target.startswith("SageMaker."):
            response = await self.answer_here(request, call, partial(self._train, request, call.operation))
            await response(request.scope, request.receive, send)
        elif target == f"{emulated_quotas.TARGET}ListServiceQuotas":
            response = await self.answer_here(request, call, self._list_quotas)
            await response(request.scope, request.receive, send)
        elif rights := [one for each in self.services for one in await each.rights(request, call, self.account)]:
            await self._answer_with(rights, request, call, send)
        elif reads_object(call):
            # Read now, because the check of the caller's rights reads it when the request has been served.
            await request.body()
            await ministack_application(
                request.scope, request.replay, HidingSend(send, partial(self._may_list, request))
            )
        else:
            await ministack_application(request.scope, request.replay, send)

    async def _answer_with(self, rights: Sequence[Right], request: EndpointRequest, call: Call, send: Send) -> None:
        """Serve a call for which the caller needs further `rights`; MiniStack checks the call itself alone."""
        await callers.admit(request, self.account)
        for action, resource, context in rights:
            if refusal := callers.refusal_of(request, self.account, action, resource, context):
                await error_answer(call, refusal)(request.scope, request.receive, send)
                return
        await ministack_application(request.scope, request.replay, send)

    async def _may_list(self, request: EndpointRequest) -> bool:
        """Whether the caller of a request for an object may list the object's bucket, without a prefix."""
        await callers.admit(request, self.account)
        bucket = f"arn:{self.account.partition}:s3:::{object_of(request)[0]}"
        return callers.refusal_of(request, self.account, "s3:ListBucket", bucket, {}) is None

    async def answer_here(self, request: EndpointRequest, call: Call, answer: Operation) -> Response:
        """The answer, in the JSON 1.1 protocol, to a call that MiniStack does not have."""
        await callers.admit(request, self.account)

        def authorise(action: str, resource: str, context: Mapping[str, object]) -> None:
            if refusal := callers.refusal_of(request, self.account, action, resource, context):
                raise ServiceError(refusal.code, refusal.message)

        try:
            document = json.loads(await request.body() or b"{}")
            found = answer(document, Caller(authorise, callers.session_tags_of(callers.access_key_of(request))))
        except json.JSONDecodeError as error:
            return error_answer(call, ServiceError("SerializationException", str(error)))
        except ServiceError as error:
            return error_answer(call, error)
        return Response(json.dumps(found), 200, _headers(_JSON))

    def _train(self, request: EndpointRequest, operation: str, document: Any, caller: Caller) -> Mapping[str, object]:
        region = signed_region(request)
        if region and region != self.account.region:
            raise service_errors.foreign_region(region, self.account.region)
        return self.training.call(operation, document, caller)

    def _list_quotas(self, document: Any, caller: Caller) -> Mapping[str, object]:
        caller.authorise(emulated_quotas.ACTION, "*", {})
        return emulated_quotas.list_service_quotas(document, self.account)


_READS = frozenset({"GetObject", "HeadObject"})
_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


def reads_object(call: Call) -> bool:
    """Whether a call is one whose 404 may be hidden."""
    return call.service == "s3" and call.operation in _READS


class HidingSend:
    """Passes an answer on, with 403 in place of MiniStack's 404 where the caller `may_list` the bucket not.

    S3's documentation of GetObject and HeadObject, *Permissions*: without s3:ListBucket a request for a key that does
    not exist gets 403. Such a request has no prefix, so a role that may list some prefixes only is among these callers.
    """

    def __init__(self, send: Send, may_list: Callable[[], Awaitable[bool]]) -> None:
        self._send = send
        self._may_list = may_list
        self._held: Message | None = None

    async def __call__(self, message: Message) -> None:
        """Take one message of the answer."""
        if message["type"] == "http.response.start" and message["status"] == 404:
            self._held = message
            return
        if self._held is None:
            await self._send(message)
            return
        start, self._held = self._held, None
        # A bucket that does not exist is no secret.
        if b"NoSuchBucket" in message.get("body", b"") or await self._may_list():
            await self._send(start)
            await self._send(message)
            return
        body = _DENIED if message.get("body") else b""
        headers = [(b"content-type", b"application/xml"), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": 403, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})


def _needs_no_signature(request: EndpointRequest) -> bool:
    """Whether everyone may make a request: exactly the two that MiniStack answers by their path alone."""
    if request.method == "GET":
        return request.path == _HEALTH
    return request.method == "PUT" and request.path.startswith(_CALLBACKS)


def _without_caller(scope: Scope) -> Scope:
    """A request of which no header and no query can choose a caller, a service or an account."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() in _OF_THE_BODY]
    return {**scope, "headers": headers, "query_string": b""}


async def _stranger_refusal(request: EndpointRequest, call: Call, access_key: str) -> ServiceError | None:
    """Why a caller is none of this cloud's: no signature, a key that does not exist, or root's without its secret.

    MiniStack verifies the signatures of users and roles; it serves some paths to who has none.
    """
    if len(request.headers.getlist("authorization")) > 1:  # MiniStack joins them, and may read another key
        return callers.refused("InvalidRequest", "Only one Authorization header is allowed.")
    if not access_key:
        code = "MissingAuthenticationTokenException" if "x-amz-target" in request.headers else "AccessDenied"
        return callers.refused(code, "Missing Authentication Token")
    if callers.foreign_root_key(access_key):
        return callers.refused("UnrecognizedClientException", "The security token included in the request is invalid.")
    if callers.is_root(access_key):
        return await callers.root_signature_refusal(request)
    if callers.caller_of(access_key)[0] == "anonymous":
        code = "InvalidAccessKeyId" if call.service == "s3" else "UnrecognizedClientException"
        return callers.refused(code, "The security token included in the request is invalid.")
    return None


async def refuse_unread(request: EndpointRequest, response: Response, send: Send) -> None:
    """Answer a request without serving it.

    Its body is read all the same: a server that has not read a request to its end closes the connection after the
    answer, while the client may already have sent its next request on it.
    """
    await request.body()
    await response(request.scope, request.receive, send)


def error_answer(call: Call, error: ServiceError | CallError) -> Response:
    """An error in the protocol of the service that was called."""
    code, message, status = error.code, error.message, error.status
    if call.service not in _XML_SERVICES and code != "AccessDenied":
        body = json.dumps({"__type": code, "message": message})
        return Response(body, status, {**_headers(_JSON), "x-amzn-errortype": code})
    inner = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    body = (
        f"<Error>{inner}</Error>"
        if call.service == "s3"
        else f"<ErrorResponse><Error><Type>Sender</Type>{inner}</Error></ErrorResponse>"
    )
    return Response(body, status, _headers("text/xml"))


def _headers(content_type: str) -> dict[str, str]:
    return {"content-type": content_type, "x-amzn-requestid": str(uuid.uuid4())}
