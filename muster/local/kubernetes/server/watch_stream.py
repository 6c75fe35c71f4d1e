"""Watches over HTTP: one JSON object in each line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.selectors import Selector
from muster.local.kubernetes.objects.status_errors import Document, StatusError, bad_request
from muster.local.kubernetes.objects.store import ObjectStore
from muster.local.kubernetes.objects.watching import BOOKMARK
from muster.local.kubernetes.server.request_info import is_true

_DEFAULT_SECONDS = 1_800.0  # kube-apiserver: --min-request-timeout
_BOOKMARK_SECONDS = 60.0
_INITIAL_END = "k8s.io/initial-events-end"


@dataclass(frozen=True)
class WatchOptions:
    """The parameters of a watch."""

    since: int | None
    seconds: float
    bookmarks: bool
    initial: bool
    """`sendInitialEvents`: the objects that are there, then a bookmark that says so."""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> WatchOptions:
        """The options of a query.

        Raises:
            StatusError: 400 where one cannot be read.
        """
        initial = is_true(query.get("sendInitialEvents"))
        return cls(
            since=None if initial else parse_version(query.get("resourceVersion", "")),
            seconds=float(parse_seconds(query) or _DEFAULT_SECONDS),
            bookmarks=is_true(query.get("allowWatchBookmarks")),
            initial=initial,
        )


def parse_version(text: str) -> int | None:
    """A resourceVersion; None for one that may be any.

    Raises:
        StatusError: 400.
    """
    if text in ("", "0"):
        return None
    if not text.isdigit():
        message = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise bad_request(message)
    return int(text)


def parse_seconds(query: Mapping[str, str]) -> int | None:
    """`timeoutSeconds`.

    Raises:
        StatusError: 400.
    """
    text = query.get("timeoutSeconds", "")
    if not text:
        return None
    if not text.isdigit():
        message = f'strconv.ParseInt: parsing "{text}": invalid syntax'
        raise bad_request(message)
    return int(text)


async def stream(
    store: ObjectStore, resource: Resource, namespace: str | None, chosen: Selector, options: WatchOptions
) -> AsyncGenerator[bytes, None]:
    """The events of a watch, until its time is over."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        watch = store.watch(resource, namespace, chosen, options.since, lambda: _wake(loop, ready))
    except StatusError as error:
        # A watch that has been accepted fails in its stream.
        yield _line("ERROR", error.document())
        return
    end = loop.time() + options.seconds
    try:
        initial = options.initial
        while True:
            ready.clear()
            # Whatever has a lower version has reached the watch already.
            seen = store.version
            while event := watch.next(0):
                yield _line(event.type, event.object)
            if initial and options.bookmarks:
                yield _line(BOOKMARK, _bookmark(resource, seen, {_INITIAL_END: "true"}))
                initial = False
            left = end - loop.time()
            if watch.closed:
                return
            if left <= 0:
                if options.bookmarks:
                    yield _line(BOOKMARK, _bookmark(resource, seen))
                return
            try:
                await asyncio.wait_for(ready.wait(), min(left, _BOOKMARK_SECONDS))
            except TimeoutError:
                if options.bookmarks and left > _BOOKMARK_SECONDS:
                    yield _line(BOOKMARK, _bookmark(resource, seen))
    finally:
        watch.close()


def _wake(loop: asyncio.AbstractEventLoop, ready: asyncio.Event) -> None:
    """Called in any thread, also while the loop ends."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(ready.set)


def _bookmark(resource: Resource, version: int, annotations: Mapping[str, str] | None = None) -> Document:
    metadata: Document = {"resourceVersion": str(version), "creationTimestamp": None}
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}


def _line(kind: str, document: Document) -> bytes:
    return json.dumps({"type": kind, "object": document}, separators=(",", ":")).encode() + b"\n"
