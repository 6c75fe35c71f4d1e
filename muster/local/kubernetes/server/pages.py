"""Lists in pages: `limit` and `continue`."""

from __future__ import annotations

import base64
import binascii
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.selectors import Selector
from muster.local.kubernetes.objects.status_errors import Document, StatusError, bad_request, expired
from muster.local.kubernetes.objects.store import Listing, ObjectStore
from muster.local.kubernetes.server.watch_stream import parse_version

_LISTS_MAX = 200
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


@dataclass(frozen=True)
class _Token:
    list: int
    offset: int


class Pages:
    """The lists of which a client has not yet read the end. Each is as it was when its first page was read."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._lists: OrderedDict[int, Listing] = OrderedDict()
        self._next = 0

    def answer(self, resource: Resource, namespace: str | None, chosen: Selector, query: Mapping[str, str]) -> Document:
        """The list that a query asks for, or the next page of one.

        Raises:
            StatusError: 400 for parameters that cannot be read, 410 for a page of a list that is forgotten.
        """
        limit = _limit(query)
        if token := query.get("continue"):
            place = _parsed(token)
            listing = self._lists.get(place.list)
            if listing is None or not self._store.remembers(listing.version):
                raise expired(_TOO_OLD)
            number, offset = place.list, place.offset
        else:
            self._check_version(query)
            listing = self._store.list(resource, namespace, chosen)
            number, offset = -1, 0
        end = len(listing.items) if limit is None else offset + limit
        metadata: Document = {"resourceVersion": str(listing.version)}
        if end < len(listing.items):
            if number < 0:
                number = self._keep(listing)
            metadata["continue"] = _encoded(_Token(number, end))
            metadata["remainingItemCount"] = len(listing.items) - end
        return list_document(resource, listing.items[offset:end], metadata)

    def _keep(self, listing: Listing) -> int:
        self._next += 1
        self._lists[self._next] = listing
        while len(self._lists) > _LISTS_MAX:
            self._lists.popitem(last=False)
        return self._next

    def _check_version(self, query: Mapping[str, str]) -> None:
        match = query.get("resourceVersionMatch", "")
        wanted = parse_version(query.get("resourceVersion", ""))
        if match and not query.get("resourceVersion"):
            message = (
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
            raise bad_request(message)
        if wanted is None:
            return
        current = self._store.version
        if wanted > current:
            message = f"Timeout: Too large resource version: {wanted}, current: {current}"
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            raise StatusError(504, "Timeout", message, {"causes": causes}, retry_after=1)
        if match == "Exact" and wanted != current:
            message = f"The resourceVersion for the provided list is too old: {wanted} ({current})"
            raise expired(message)


def list_document(resource: Resource, items: list[Document], metadata: Document) -> Document:
    """A list object. Items of built-in kinds do not repeat their kind."""
    shown = items
    if not resource.custom:
        shown = [{key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items]
    return {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata, "items": shown}


def _limit(query: Mapping[str, str]) -> int | None:
    text = query.get("limit", "")
    if not text:
        return None
    if not text.isdigit():
        message = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise bad_request(message)
    return int(text) or None


def _encoded(token: _Token) -> str:
    return base64.urlsafe_b64encode(json.dumps([token.list, token.offset]).encode()).decode()


def _parsed(text: str) -> _Token:
    try:
        number, offset = json.loads(base64.urlsafe_b64decode(text.encode()))
        return _Token(int(number), int(offset))
    except (binascii.Error, ValueError, TypeError) as error:
        message = "continue key is not valid"
        raise bad_request(message) from error
