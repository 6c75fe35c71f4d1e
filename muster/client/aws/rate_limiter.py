"""Keeping to a rate that a service sets for everybody, whichever threads of this process call it."""

from __future__ import annotations

import threading
import time


class Pace:
    """Gives out the slots of a rate in the order of asking."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second
        self._free = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when this caller's slot has come."""
        with self._lock:
            now = time.monotonic()
            slot = max(now, self._free)
            self._free = slot + self._gap
        time.sleep(slot - now)
