"""The API of a cluster as an ASGI application: who asks, whether that is allowed, and the answer."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from muster.local.counted_calls import Call, CallLog
from muster.local.faults import KubernetesError
from muster.local.service.fault_book import FaultBook
from muster.options.hyperpod.local.kubernetes.object_store import DeleteOptions, ObjectStore
from muster.options.hyperpod.local.kubernetes.requests import parse_labels, read_body, request_info
from muster.options.hyperpod.local.kubernetes.rights import ANONYMOUS, Attributes, Authorizer, User, refusal, review
from muster.options.hyperpod.local.kubernetes.schemas import completed
from muster.options.hyperpod.local.kubernetes.served_resources import JOBS, PODS, RESOURCES, SERVICE_ACCOUNTS, Resource
from muster.options.hyperpod.local.kubernetes.status_errors import (
    Document,
    StatusError,
    bad_request,
    method_not_allowed,
    no_such_path,
    not_served,
)

_log = logging.getLogger("muster.options.hyperpod.local.kubernetes")
VERSION = "1.33"
SERVICE = "kubernetes"
"""As calls are counted: `kubernetes`, `create hyperpodpytorchjobs`."""
BODY_BYTES_MAX = 1_572_864  # etcd: --max-request-bytes
_REVIEWS, _REVIEW = "authorization.k8s.io", "selfsubjectaccessreviews"
_KNOWN: Mapping[str, frozenset[str]] = {
    "get": frozenset(),
    "list": frozenset({"labelSelector", "limit", "continue"}),
    "create": frozenset({"fieldValidation"}),
    "delete": frozenset(),
}
"""The verbs that are served, with their parameters."""
_NEVER_GIVEN = ("generateName", "finalizers", "ownerReferences", "resourceVersion")
_OPTIONS = frozenset({"kind", "apiVersion", "propagationPolicy", "preconditions"})
"""Of a deletion."""

Authenticate = Callable[[str], User | None]
"""The user behind a bearer token; None for a token that is none."""


class KubernetesApi:
    """An ASGI application."""

    def __init__(
        self, name: str, store: ObjectStore, authenticate: Authenticate, faults: FaultBook, calls: CallLog
    ) -> None:
        """The API of the EKS cluster `name`. `faults` may hold a KubernetesError; `calls` counts the requests."""
        self._name = name
        self._store = store
        self._authenticate = authenticate
        self._faults = faults
        self._calls = calls
        self._authorizer = Authorizer(store)
        self._resources = {(item.group, item.version, item.plural): item for item in RESOURCES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] != "http":
            return
        request, fault = Request(scope, receive), None
        try:
            body = await _body(request)
            user = self._user(request)
            info = request_info(request.method, scope["path"])
            self._calls.add(Call(SERVICE, f"{info.verb} {info.path or info.full_resource}"), _caller(user))
            fault = self._fault(info, user)
            if fault is None or fault.after_effect:
                answer = self._answer(request, info, user, body)
        except ClientDisconnect:
            return
        except StatusError as error:
            answer = _refused(error)
        except Exception as error:
            _log.exception("%s %s failed", request.method, scope["path"])
            answer = _refused(StatusError(500, "InternalError", f"Internal error occurred: {error}"))
        if fault is not None and fault.disconnect:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1024")]})
            await send({"type": "http.response.body", "body": b"{", "more_body": False})
            return
        if fault is not None:
            answer = _refused(StatusError(fault.code, *fault.reason, retry_after=fault.retry_after))
        await answer(scope, receive, send)

    def _user(self, request: Request) -> User:
        """Who asks.

        Raises:
            StatusError: 401 for a token that is none.
        """
        given = request.headers.get("authorization", "")
        if not given:
            return ANONYMOUS
        kind, _, token = given.partition(" ")
        user = self._authenticate(token.strip()) if kind.lower() == "bearer" else None
        if user is None:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return user

    def _fault(self, info: Attributes, user: User) -> KubernetesError | None:
        def matches(fault: KubernetesError) -> bool:
            pairs = (
                (self._name, fault.cluster),
                (info.verb, fault.verb),
                (info.full_resource, fault.resource),
                (info.namespace, fault.namespace),
                (info.name, fault.name),
                (_caller(user), fault.caller),
            )
            return not info.path and all(fnmatchcase(value, pattern) for value, pattern in pairs)

        return self._faults.take(KubernetesError, matches)

    def _answer(self, request: Request, info: Attributes, user: User, body: bytes) -> JSONResponse:
        if not self._authorizer.allows(user, info):
            raise refusal(user, info)
        if info.path:
            return JSONResponse(_about(info.path))
        if (info.group, info.resource) == (_REVIEWS, _REVIEW):
            if request.method != "POST":
                raise method_not_allowed()
            document = read_body(body, request.headers, "SelfSubjectAccessReview")
            return JSONResponse(review(document, user, self._authorizer), 201)
        resource = self._resources.get((info.group, info.version, info.resource))
        if resource is None:
            if info.group == JOBS.group:  # the operator has no other
                raise no_such_path()
            what = info.full_resource
            raise not_served(what)
        _check_served(resource, info, request.query_params)
        if info.verb == "create":
            return JSONResponse(self._create(resource, request, info, user, body), 201)
        if info.verb == "get":
            return JSONResponse(self._store.get(resource, info.name, info.namespace))
        if info.verb == "list":
            return JSONResponse(self._list(resource, info.namespace or None, request.query_params))
        document, gone = self._store.delete(resource, info.name, info.namespace, _delete_options(body, request.headers))
        # The deletion of an account is answered with it also when it is gone.
        return JSONResponse(_deleted(resource, document) if gone and resource != SERVICE_ACCOUNTS else document)

    def _create(self, resource: Resource, request: Request, info: Attributes, user: User, body: bytes) -> Document:
        strict = request.query_params.get("fieldValidation", "")
        if strict not in ("", "Strict"):
            what = f"create with fieldValidation={strict}"
            raise not_served(what)
        kind = f'{resource.kind} in version "{resource.version}"'
        document = read_body(body, request.headers, kind)
        for name, part in (("apiVersion", "apiVersion"), ("kind", "Kind")):
            # That it is what the path says, the store checks.
            if resource == JOBS and not document.get(name):
                message = f"Object '{part}' is missing in '{json.dumps(document, separators=(',', ':'))[:200]}'"
                raise bad_request(message)
        kept, unknown = completed(resource, document)
        if strict and unknown:
            faults = ", ".join(f'unknown field "{path}"' for path in unknown)
            message = f"{kind} cannot be handled as a {resource.kind}: strict decoding error: {faults}"
            raise bad_request(message)
        for name in _NEVER_GIVEN:
            if kept["metadata"].get(name):
                what = f"create with metadata.{name}"
                raise not_served(what)
        spec = kept.get("spec")
        specs = spec.get("replicaSpecs") if resource == JOBS and isinstance(spec, dict) else None
        if isinstance(specs, list) and len(specs) > 1:
            what = "several replicaSpecs: the embedded operator runs one"
            raise not_served(what)
        self._authorizer.check_grant(user, resource, kept, info.namespace)
        return self._store.create(resource, document, info.namespace)

    def _list(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> Document:
        """A page of a list: what follows the object that the token of the page before names.

        Raises:
            StatusError: 400 for parameters that cannot be read.
        """
        found = self._store.list(resource, namespace, parse_labels(query.get("labelSelector", "")))
        limit, after = _number(query.get("limit") or "0"), _place(query.get("continue", ""))
        left = [item for item in found if _key(item) > after]
        items = left[:limit] if limit else left
        metadata: Document = {}
        if len(items) < len(left):
            metadata["continue"] = base64.urlsafe_b64encode("/".join(_key(items[-1])).encode()).decode()
            metadata["remainingItemCount"] = len(left) - len(items)
        if resource != JOBS:  # items of built-in kinds do not repeat their kind
            items = [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": items,
        }


async def _body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        StatusError: 413.
    """
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            text = f"Request entity too large: limit is {BODY_BYTES_MAX}"
            raise StatusError(413, "RequestEntityTooLarge", text)
    return body


def _caller(user: User) -> str:
    return user.principal or user.name


def _refused(error: StatusError) -> JSONResponse:
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return JSONResponse(error.document(), error.code, headers)


def _about(path: str) -> Document:
    """What the server says of itself: its version, and the resources of a group."""
    if path == "/version":
        major, minor = VERSION.split(".")
        return {"major": major, "minor": minor, "gitVersion": f"v{VERSION}.5-eks-3025e55"}
    group = path.removeprefix("/apis/")
    resources = [{"name": item.plural} for item in RESOURCES if item.api_version == group]
    if not resources:
        raise no_such_path()
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": resources}


def _check_served(resource: Resource, info: Attributes, query: Mapping[str, str]) -> None:
    if info.verb == "create" and (info.name or not info.namespace):
        raise method_not_allowed()
    if info.name and not info.namespace:
        raise no_such_path()
    known = _KNOWN.get(info.verb)
    if known is None or info.subresource or (resource == PODS and info.verb not in ("get", "list")):
        what = f"{info.verb} of {info.full_resource}"
        raise not_served(what)
    for name, value in query.items():
        if name not in known and value:
            what = f"{info.verb} with {name}"
            raise not_served(what)


def _key(item: Document) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _place(token: str) -> tuple[str, str]:
    """Namespace and name of the object that a token names; empty ones come before all."""
    try:
        namespace, _, name = base64.urlsafe_b64decode(token.encode()).decode().partition("/")
    except ValueError as error:
        message = "continue key is not valid"
        raise bad_request(message) from error
    return namespace, name


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        message = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise bad_request(message)
    return int(text)


def _delete_options(body: bytes, headers: Mapping[str, str]) -> DeleteOptions:
    """The options of a deletion, from its body.

    Raises:
        StatusError: 400 where they cannot be read, 501 where they are not served.
    """
    found = read_body(body, headers, "DeleteOptions") if body.strip() else {}
    policy = found.get("propagationPolicy")
    others = [name for name, value in found.items() if value is not None and name not in _OPTIONS]
    if others or policy not in (None, "Background", "Foreground"):
        what = f"delete with {others[0] if others else policy}"
        raise not_served(what)
    conditions = found.get("preconditions") or {}
    if not isinstance(conditions, dict):
        message = "json: cannot unmarshal into Go struct field DeleteOptions.preconditions"
        raise bad_request(message)
    return DeleteOptions(policy == "Foreground", None, conditions.get("uid"), conditions.get("resourceVersion"))


def _deleted(resource: Resource, document: Document) -> Document:
    """The `Status` of an object that is gone."""
    metadata = document["metadata"]
    details = {"name": metadata["name"], "group": resource.group, "kind": resource.plural, "uid": metadata["uid"]}
    shown = {key: value for key, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": shown}
