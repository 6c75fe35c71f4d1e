"""State-change events sent to EventBridge, in order unless a fault reorders them."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable
from fnmatch import fnmatchcase

from muster.local.faults import EventFault
from muster.local.sagemaker.training_job import Change
from muster.local.service.fault_book import FaultBook

_log = logging.getLogger(__name__)

SOURCE = "aws.sagemaker"
DETAIL_TYPE = "SageMaker Training Job State Change"


class EventDispatcher:
    """One thread that sends changes when they are due. `publish` does not block."""

    def __init__(self, send: Callable[[Change], None], faults: FaultBook) -> None:
        self._send = send
        self._faults = faults
        self._order = itertools.count()
        self._queue: list[tuple[float, int, Change]] = []
        self._held: dict[str, Change] = {}
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="events", daemon=True).start()

    def publish(self, change: Change) -> None:
        """Send `change` at once, or as a fault demands."""
        fault = self._faults.take(EventFault, lambda candidate: _matches(candidate, change))
        now = time.monotonic()
        with self._changed:
            overtaken = self._held.pop(change.job, None)
            if fault is None:
                self._push(now, change)
            elif fault.action == "duplicate":
                for _ in range(fault.copies):
                    self._push(now, change)
            elif fault.action == "delay":
                self._push(now + fault.seconds, change)
            elif fault.action == "reorder":
                self._held[change.job] = change
                # If no other change follows, it is sent late.
                threading.Timer(fault.seconds, self._release, (change,)).start()
            if overtaken is not None:
                self._push(now, overtaken)
            self._changed.notify()

    def _release(self, change: Change) -> None:
        with self._changed:
            if self._held.get(change.job) is change:
                del self._held[change.job]
                self._push(time.monotonic(), change)
                self._changed.notify()

    def _push(self, due: float, change: Change) -> None:
        heapq.heappush(self._queue, (due, next(self._order), change))

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue or self._queue[0][0] > time.monotonic():
                    wait = self._queue[0][0] - time.monotonic() if self._queue else None
                    self._changed.wait(wait)
                _, _, change = heapq.heappop(self._queue)
            try:
                self._send(change)
            except Exception:
                _log.exception("The event %s of %s was not sent", change.secondary, change.job)


def _matches(fault: EventFault, change: Change) -> bool:
    statuses = (change.status, change.secondary)
    return fnmatchcase(change.job, fault.job) and any(fnmatchcase(status, fault.status) for status in statuses)
