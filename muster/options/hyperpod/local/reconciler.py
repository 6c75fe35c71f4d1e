"""Keys that wait for one thread, which reconciles each at once or at its time: how a controller works."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 1.0


class WorkQueue(Generic[K]):
    """One thread that calls `reconcile` with the keys that are due. A key that is added twice is reconciled once.

    `reconcile` returns after how many seconds the key is due again, or None. An error is logged, and the key comes
    again.
    """

    def __init__(self, name: str, reconcile: Callable[[K], float | None]) -> None:
        self._reconcile = reconcile
        self._order = itertools.count()
        self._heap: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._changed = threading.Condition()
        self._paused_until = 0.0
        self._closed = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def add(self, key: K, seconds: float = 0.0) -> None:
        """Reconcile `key` in `seconds`, or earlier where it waits already."""
        due = time.monotonic() + seconds
        with self._changed:
            if self._due.get(key, due + 1) <= due:
                return
            self._due[key] = due
            heapq.heappush(self._heap, (due, next(self._order), key))
            self._changed.notify()

    def pause(self, seconds: float) -> None:
        """Reconcile nothing for so long; what is added meanwhile waits."""
        with self._changed:
            self._paused_until = time.monotonic() + seconds
            self._changed.notify()

    def close(self) -> None:
        """End the thread; what waits is dropped. May be called by `reconcile`."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _next(self) -> K | None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
                    heapq.heappop(self._heap)  # the key was added again for an earlier time
                due = max(self._heap[0][0], self._paused_until) if self._heap else None
                if due is not None and due <= now:
                    _, _, key = heapq.heappop(self._heap)
                    del self._due[key]
                    return key
                self._changed.wait(None if due is None else due - now)
        return None

    def _run(self) -> None:
        while (key := self._next()) is not None:
            try:
                again = self._reconcile(key)
            except Exception:
                _log.exception("Reconciling %s failed", key)
                again = _AGAIN_SECONDS
            if again is not None:
                self.add(key, again)
