"""Events and log lines on their way to the services, which take them one at a time on the event loop."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping

from muster.local.ministack.host import Host

_log = logging.getLogger(__name__)
_Entry = tuple[str, str, Mapping[str, object], str]


class EventQueue:
    """Puts events on the bus from a thread of its own; `put` never blocks."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._entries: queue.SimpleQueue[_Entry] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="cluster-events", daemon=True).start()

    def put(self, source: str, detail_type: str, detail: Mapping[str, object], resource: str) -> None:
        """Put an event on the default bus."""
        self._entries.put((source, detail_type, detail, resource))

    def _run(self) -> None:
        while True:
            entry = self._entries.get()
            try:
                self._host.put_event(*entry)
            except Exception:
                _log.exception("The event %s was not sent", entry[1])
