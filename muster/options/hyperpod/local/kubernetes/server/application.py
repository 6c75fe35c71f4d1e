"""The ASGI application of a cluster's API: who asks, whether that is allowed, and the answer."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import parse_qsl

from starlette.types import Receive, Scope, Send

from muster.local.faults import KubernetesError
from muster.options.hyperpod.local.kubernetes.kinds.served_resources import JOBS, RESOURCES
from muster.options.hyperpod.local.kubernetes.objects.object_store import ObjectStore
from muster.options.hyperpod.local.kubernetes.objects.status_errors import (
    Document,
    StatusError,
    method_not_allowed,
    no_such_path,
    not_served,
    unauthorized,
)
from muster.options.hyperpod.local.kubernetes.rights.authorizer import Authorizer, review
from muster.options.hyperpod.local.kubernetes.rights.users import ANONYMOUS, Attributes, User, refusal
from muster.options.hyperpod.local.kubernetes.server import bodies
from muster.options.hyperpod.local.kubernetes.server.request_info import request_info
from muster.options.hyperpod.local.kubernetes.server.verbs import ApiAnswer, ApiRequest, Verbs

_log = logging.getLogger("muster.options.hyperpod.local.kubernetes")
VERSION = "1.33"
_REVIEWS, _REVIEW = "authorization.k8s.io", "selfsubjectaccessreviews"
Authenticate = Callable[[str], User | None]
"""The user behind a bearer token; None for a token that is none."""


class CallObserver(Protocol):
    """What the embedded cloud knows of calls: it counts them, and decides about faults."""

    def count(self, info: Attributes, user: User) -> None:
        """Count a request."""

    def take_fault(self, info: Attributes, user: User) -> KubernetesError | None:
        """The fault for a request, if any."""


@dataclass(frozen=True)
class _Incoming:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


class KubernetesApi:
    """An ASGI application."""

    def __init__(self, store: ObjectStore, authenticate: Authenticate, observer: CallObserver) -> None:
        self._authenticate = authenticate
        self._authorizer = Authorizer(store)
        self._verbs = Verbs(store, self._authorizer)
        self._observer = observer
        self._resources = {(item.group, item.version, item.plural): item for item in RESOURCES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] != "http":
            return
        incoming = _incoming(scope)
        fault: KubernetesError | None = None
        try:
            body = await _body(receive)
            if body is None:
                return
            user = self._user(incoming)
            info = request_info(incoming.method, incoming.path, incoming.query)
            self._observer.count(info, user)
            fault = self._observer.take_fault(info, user)
            if fault is not None and not fault.after_effect:
                await _fail(send, fault)
                return
            answer = self._answer(incoming, info, user, body)
        except StatusError as error:
            answer = _refusal(error)
        except Exception as error:
            _log.exception("%s %s failed", incoming.method, incoming.path)
            answer = _refusal(StatusError(500, "InternalError", f"Internal error occurred: {error}"))
        if fault is not None:
            await _fail(send, fault)
        else:
            await _reply(send, answer)

    def _user(self, incoming: _Incoming) -> User:
        """Who asks.

        Raises:
            StatusError: 401 for a token that is none.
        """
        given = incoming.headers.get("authorization", "")
        if not given:
            return ANONYMOUS
        kind, _, token = given.partition(" ")
        user = self._authenticate(token.strip()) if kind.lower() == "bearer" else None
        if user is None:
            raise unauthorized()
        return user

    def _answer(self, incoming: _Incoming, info: Attributes, user: User, body: bytes) -> ApiAnswer:
        if not self._authorizer.allows(user, info):
            raise refusal(user, info)
        if info.path:
            return ApiAnswer(self._about(incoming))
        if (info.group, info.resource) == (_REVIEWS, _REVIEW):
            if incoming.method != "POST":
                raise method_not_allowed()
            document = bodies.read_body(body, incoming.headers)
            return ApiAnswer(review(document, user, self._authorizer), 201)
        resource = self._resources.get((info.group, info.version, info.resource))
        if resource is None:
            if info.group == JOBS.group:  # the operator has no other
                raise no_such_path()
            what = info.full_resource
            raise not_served(what)
        return self._verbs.answer(resource, ApiRequest(info, incoming.query, incoming.headers, user, body))

    def _about(self, incoming: _Incoming) -> Document:
        """What the server says of itself: its version, and the resources of a group."""
        if incoming.method != "GET":
            raise method_not_allowed()
        if incoming.path == "/version":
            major, minor = VERSION.split(".")
            return {"major": major, "minor": minor, "gitVersion": f"v{VERSION}.5-eks-3025e55"}
        group = incoming.path.removeprefix("/apis/")
        names = [item.plural for item in RESOURCES if item.api_version == group]
        if not names:
            raise no_such_path()
        resources = [{"name": name} for name in names]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources}


def _incoming(scope: Scope) -> _Incoming:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    path = bytes(scope.get("raw_path") or scope["path"].encode()).decode("latin-1").split("?", 1)[0]
    return _Incoming(scope["method"], path, query, headers)


async def _body(receive: Receive) -> bytes | None:
    """The body of a request; None where the client went away.

    Raises:
        StatusError: 413.
    """
    body: bytes = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > bodies.BODY_BYTES_MAX:
            text = f"Request entity too large: limit is {bodies.BODY_BYTES_MAX}"
            raise StatusError(413, "RequestEntityTooLarge", text)
        if not message.get("more_body"):
            return body


def _refusal(error: StatusError) -> ApiAnswer:
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return ApiAnswer(error.document(), error.code, headers=headers)


async def _fail(send: Send, fault: KubernetesError) -> None:
    if fault.disconnect:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1024")]})
        await send({"type": "http.response.body", "body": b"{", "more_body": False})
        return
    await _reply(send, _refusal(StatusError(fault.code, *fault.reason, retry_after=fault.retry_after)))


async def _reply(send: Send, answer: ApiAnswer) -> None:
    kind, body = b"application/json", json.dumps(answer.document, separators=(",", ":")).encode() + b"\n"
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    headers += [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-cache, private"),
    ]
    await send({"type": "http.response.start", "status": answer.code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
