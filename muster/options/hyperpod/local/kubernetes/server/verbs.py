"""What each verb does with a resource. The caller has been authorised before."""

from __future__ import annotations

import base64
import binascii
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.options.hyperpod.local.kubernetes.kinds.served_resources import SERVICE_ACCOUNTS
from muster.options.hyperpod.local.kubernetes.objects.metadata import parse_labels
from muster.options.hyperpod.local.kubernetes.objects.object_store import DeleteOptions, Listing, ObjectStore
from muster.options.hyperpod.local.kubernetes.objects.resource import Resource
from muster.options.hyperpod.local.kubernetes.objects.status_errors import (
    Document,
    bad_request,
    expired,
    internal,
    method_not_allowed,
    no_such_path,
    not_served,
)
from muster.options.hyperpod.local.kubernetes.rights.authorizer import Authorizer
from muster.options.hyperpod.local.kubernetes.rights.users import Attributes, User
from muster.options.hyperpod.local.kubernetes.schema.schemas import completed
from muster.options.hyperpod.local.kubernetes.server import bodies

_KNOWN: Mapping[str, frozenset[str]] = {
    "get": frozenset(),
    "list": frozenset({"labelSelector", "limit", "continue"}),
    "create": frozenset({"fieldValidation"}),
    "delete": frozenset(),
}
"""The verbs that are served, with their parameters."""
_NEVER_GIVEN = ("generateName", "finalizers", "ownerReferences")
_LISTS_MAX = 200
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


@dataclass(frozen=True)
class ApiRequest:
    """A request for a resource."""

    info: Attributes
    query: Mapping[str, str]
    headers: Mapping[str, str]
    user: User
    body: bytes = b""


@dataclass(frozen=True)
class ApiAnswer:
    """An object with a status code."""

    document: Document
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


class Verbs:
    """The verbs of a cluster's API."""

    def __init__(self, store: ObjectStore, authorizer: Authorizer) -> None:
        self._store = store
        self._authorizer = authorizer
        self._lists: OrderedDict[str, Listing] = OrderedDict()
        """The lists of which a client has not yet read the end. Each is as it was when its first page was read."""
        self._next = 0

    def answer(self, resource: Resource, request: ApiRequest) -> ApiAnswer:
        """Do what a request asks for.

        Raises:
            StatusError: the request gets this instead.
        """
        info = request.info
        if not info.namespace:
            if info.verb == "create":
                raise method_not_allowed()
            if info.name:
                raise no_such_path()
        known = _KNOWN.get(info.verb)
        if known is None or info.subresource or (resource.read_only and info.verb not in ("get", "list")):
            what = f"{info.verb} of {info.full_resource}"
            raise not_served(what)
        for name, value in request.query.items():
            if name not in known and value:
                what = f"{info.verb} with {name}"
                raise not_served(what)
        if info.verb == "create":
            return self._create(resource, request)
        if info.verb == "get":
            return ApiAnswer(self._store.get(resource, info.name, info.namespace))
        if info.verb == "list":
            return ApiAnswer(self._list(resource, info.namespace or None, request.query))
        document, gone = self._store.delete(resource, info.name, info.namespace, _delete_options(request))
        # The deletion of an account is answered with it also when it is gone.
        return ApiAnswer(_deleted(resource, document) if gone and resource != SERVICE_ACCOUNTS else document)

    def _create(self, resource: Resource, request: ApiRequest) -> ApiAnswer:
        if request.info.name:
            raise method_not_allowed()
        strict = request.query.get("fieldValidation", "")
        if strict not in ("", "Strict"):
            what = f"create with fieldValidation={strict}"
            raise not_served(what)
        kind = f'{resource.kind} in version "{resource.version}"'
        document = bodies.read_body(request.body, request.headers, kind)
        _check_kind(resource, document)
        if strict:
            bodies.refuse_surplus(resource, document)
        if len(json.dumps(document, separators=(",", ":"))) > bodies.OBJECT_BYTES_MAX:
            message = "etcdserver: request is too large"
            raise internal(message)
        place = request.info.namespace
        # Rights that the caller lacks cannot be given, in the document as it will be kept.
        kept = completed(resource, document)
        for name in _NEVER_GIVEN:
            if kept["metadata"].get(name):
                what = f"create with metadata.{name}"
                raise not_served(what)
        self._authorizer.check_grant(request.user, resource, kept, place)
        return ApiAnswer(self._store.create(resource, document, place), 201)

    def _list(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> Document:
        """A list, or its next page.

        Raises:
            StatusError: 400 for parameters that cannot be read, 410 for a page of a list that is forgotten.
        """
        limit, offset = _number(query.get("limit") or "0"), 0
        if token := query.get("continue"):
            number, offset = _place(token)
            if number not in self._lists:
                raise expired(_TOO_OLD)
            listing = self._lists[number]
        else:
            listing = self._store.list(resource, namespace, parse_labels(query.get("labelSelector", "")))
            self._next += 1
            number = str(self._next)
        end = offset + limit if limit else len(listing.items)
        metadata: Document = {"resourceVersion": str(listing.version)}
        if end < len(listing.items):
            self._lists[number] = listing
            while len(self._lists) > _LISTS_MAX:
                self._lists.popitem(last=False)
            metadata["continue"] = base64.urlsafe_b64encode(f"{number}/{end}".encode()).decode()
            metadata["remainingItemCount"] = len(listing.items) - end
        items = listing.items[offset:end]
        if not resource.custom:  # items of built-in kinds do not repeat their kind
            items = [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]
        return {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "items": items,
        }


def _place(token: str) -> tuple[str, int]:
    """The list that a token means, and where in it the next page begins."""
    try:
        number, _, offset = base64.urlsafe_b64decode(token.encode()).decode().partition("/")
    except (binascii.Error, UnicodeDecodeError) as error:
        message = "continue key is not valid"
        raise bad_request(message) from error
    return number, _number(offset)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        message = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise bad_request(message)
    return int(text)


def _delete_options(request: ApiRequest) -> DeleteOptions:
    """The options of a deletion, from its body.

    Raises:
        StatusError: 400 where they cannot be read, 501 where they are not served.
    """
    found: Document = {}
    if request.body.strip():
        found = bodies.read_body(request.body, request.headers, "DeleteOptions")
    for name in ("orphanDependents", "dryRun", "gracePeriodSeconds"):
        if found.get(name) is not None:
            what = f"delete with {name}"
            raise not_served(what)
    conditions = found.get("preconditions") or {}
    if not isinstance(conditions, dict):
        message = "json: cannot unmarshal into Go struct field DeleteOptions.preconditions"
        raise bad_request(message)
    policy = found.get("propagationPolicy")
    return DeleteOptions(policy, None, conditions.get("uid"), conditions.get("resourceVersion"))


def _deleted(resource: Resource, document: Document) -> Document:
    """The `Status` of an object that is gone."""
    metadata = document["metadata"]
    details = {"name": metadata["name"], "group": resource.group, "kind": resource.plural, "uid": metadata["uid"]}
    shown = {key: value for key, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": shown}


def _check_kind(resource: Resource, document: Document) -> None:
    """The body of a custom resource must say what it is; that it is what the path says, the store checks."""
    for name, part in (("apiVersion", "apiVersion"), ("kind", "Kind")):
        if resource.custom and not document.get(name):
            shown = json.dumps(document, separators=(",", ":"))[:200]
            message = f"Object '{part}' is missing in '{shown}'"
            raise bad_request(message)
