"""State-change events sent to EventBridge, in order unless a fault reorders them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from fnmatch import fnmatchcase
from queue import SimpleQueue

from muster.local.faults import EventFault
from muster.local.sagemaker.training_job import Change
from muster.local.service.fault_book import FaultBook

_log = logging.getLogger(__name__)

SOURCE = "aws.sagemaker"
DETAIL_TYPE = "SageMaker Training Job State Change"


class EventDispatcher:
    """One thread that sends changes. `publish` does not block."""

    def __init__(self, send: Callable[[Change], None], faults: FaultBook) -> None:
        self._send = send
        self._faults = faults
        self._due: SimpleQueue[Change] = SimpleQueue()
        self._held: dict[str, Change] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="events", daemon=True).start()

    def publish(self, change: Change) -> None:
        """Send `change` at once, or as a fault demands."""
        fault = self._faults.take(EventFault, lambda candidate: _matches(candidate, change))
        with self._lock:
            overtaken = self._held.pop(change.job, None)
            if fault is None:
                self._due.put(change)
            elif fault.action == "duplicate":
                for _ in range(fault.copies):
                    self._due.put(change)
            elif fault.action == "delay":
                threading.Timer(fault.seconds, self._due.put, (change,)).start()
            elif fault.action == "reorder":
                self._held[change.job] = change
                # If no other change follows, it is sent late.
                threading.Timer(fault.seconds, self._release, (change,)).start()
            if overtaken is not None:
                self._due.put(overtaken)

    def _release(self, change: Change) -> None:
        with self._lock:
            if self._held.get(change.job) is change:
                self._due.put(self._held.pop(change.job))

    def _run(self) -> None:
        while True:
            change = self._due.get()
            try:
                self._send(change)
            except Exception:
                _log.exception("The event %s of %s was not sent", change.secondary, change.job)


def _matches(fault: EventFault, change: Change) -> bool:
    statuses = (change.status, change.secondary)
    return fnmatchcase(change.job, fault.job) and any(fnmatchcase(status, fault.status) for status in statuses)
