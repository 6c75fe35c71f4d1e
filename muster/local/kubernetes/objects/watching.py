"""Changes of objects: a bounded history, and the watches that follow it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.selectors import EVERYTHING, Selector
from muster.local.kubernetes.objects.status_errors import Document

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"
# A watcher that is this far behind is cut off, as by a kube-apiserver.
_BACKLOG_MAX = 10_000


@dataclass(frozen=True)
class Change:
    """One change of an object. The documents are shared: nothing may change them."""

    version: int
    type: str
    resource: Resource
    namespace: str
    new: Document
    old: Document | None


@dataclass(frozen=True)
class WatchEvent:
    """What a watcher sees of a change. The document is shared: copy it before you change it."""

    type: str
    object: Document
    version: int
    resource: Resource


@dataclass(frozen=True)
class Interest:
    """Which changes a watch follows."""

    resource: Resource | None = None
    """None: of every resource."""
    namespace: str | None = None
    """None: of every namespace."""
    selector: Selector = EVERYTHING

    def covers(self, resource: Resource, namespace: str) -> bool:
        """Whether an object there may be meant, whatever it contains."""
        return self.resource in (None, resource) and self.namespace in (None, namespace)

    def event(self, change: Change) -> WatchEvent | None:
        """What a watcher sees: an object that ceases to match is deleted for it, one that begins to match is added."""
        if not self.covers(change.resource, change.namespace):
            return None
        now = change.type != DELETED and self.selector.matches(change.new)
        before = change.old is not None and self.selector.matches(change.old)
        if not now and not before:
            return None
        kind = MODIFIED if now and before else ADDED if now else DELETED
        return WatchEvent(kind, change.new, change.version, change.resource)


class Watch:
    """A stream of events. Iterate with `next`, or be called back; close it when done."""

    def __init__(self, interest: Interest, close: Callable[[Watch], None], wake: Callable[[], None] | None) -> None:
        self._interest = interest
        self._close = close
        self._wake = wake
        self._events: deque[WatchEvent] = deque()
        self._changed = threading.Condition()
        self.closed = False
        """Whether nothing more will come: it was closed, or its reader was too slow."""

    def offer(self, change: Change) -> None:
        """Take a change; the store calls this in order."""
        if event := self._interest.event(change):
            self.push(event)

    def push(self, event: WatchEvent) -> None:
        """Add an event for the reader."""
        with self._changed:
            if self.closed:
                return
            self._events.append(event)
            if len(self._events) > _BACKLOG_MAX:
                self.closed = True
            self._changed.notify_all()
        if self._wake:
            self._wake()

    def next(self, timeout: float | None = None) -> WatchEvent | None:
        """The next event; None when there is none within `timeout` seconds (None: for ever), or at the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while not self._events:
                left = None if deadline is None else deadline - time.monotonic()
                if self.closed or (left is not None and left <= 0):
                    return None
                self._changed.wait(left)
            return self._events.popleft()

    def close(self) -> None:
        """End the watch; a reader that waits gets None."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        self._close(self)
        if self._wake:
            self._wake()
