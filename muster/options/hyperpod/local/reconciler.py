"""One thread that brings something to what it should be, on changes and at times: how a controller works."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 1.0


class Reconciler:
    """Calls `reconcile` in its thread when it was woken, once for all that has happened until then.

    `reconcile` returns after how many seconds it is due again, or None. After an error, which is logged, it is, too.
    """

    def __init__(self, name: str, reconcile: Callable[[], float | None]) -> None:
        self._reconcile = reconcile
        self._due: float | None = None
        self._paused_until = 0.0
        self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def wake(self, seconds: float = 0.0) -> None:
        """Reconcile in `seconds`, or earlier where that is due already."""
        due = time.monotonic() + seconds
        with self._changed:
            if self._due is None or due < self._due:
                self._due = due
                self._changed.notify()

    def pause(self, seconds: float) -> None:
        """Reconcile nothing for so long; what happens meanwhile waits."""
        with self._changed:
            self._paused_until = time.monotonic() + seconds
            self._changed.notify()

    def close(self) -> None:
        """End the thread. May be called by `reconcile`."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _wait(self) -> bool:
        """Wait until it is due; False when it was closed."""
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                due = None if self._due is None else max(self._due, self._paused_until)
                if due is not None and due <= now:
                    self._due = None
                    return True
                self._changed.wait(None if due is None else due - now)
        return False

    def _run(self) -> None:
        while self._wait():
            try:
                again = self._reconcile()
            except Exception:
                _log.exception("%s failed", threading.current_thread().name)
                again = _AGAIN_SECONDS
            if again is not None:
                self.wake(again)
