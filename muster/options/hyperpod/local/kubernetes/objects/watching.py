"""Watches: the changes of objects, for the controllers in this process."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from muster.options.hyperpod.local.kubernetes.objects.resource import Resource
from muster.options.hyperpod.local.kubernetes.objects.status_errors import Document

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
# A watcher that is this far behind is cut off, as by a kube-apiserver.
_BACKLOG_MAX = 10_000


@dataclass(frozen=True)
class WatchEvent:
    """A change of an object. The document is shared: copy it before you change it."""

    type: str
    object: Document
    resource: Resource


class ObjectWatch:
    """A stream of events. Iterate with `next`; close it when done."""

    def __init__(self, close: Callable[[ObjectWatch], None]) -> None:
        self._close = close
        self._events: deque[WatchEvent] = deque()
        self._changed = threading.Condition()
        self.closed = False
        """Whether nothing more will come: it was closed, or its reader was too slow."""

    def push(self, event: WatchEvent) -> None:
        """Add an event for the reader."""
        with self._changed:
            if self.closed:
                return
            self._events.append(event)
            if len(self._events) > _BACKLOG_MAX:
                self.closed = True
            self._changed.notify_all()

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
