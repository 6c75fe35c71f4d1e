"""What the training loop of a process spends its time on.

The loop trains, or it is blocked. While it is blocked, the time counts for what the exchange does then: an exchange
that runs beside the training loop takes none of its time. A change costs a microsecond; an inner step makes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from muster.contract.run.time_use import Activity, spent_on


class TimeAccount:
    """Seconds by activity since the last contribution. The process loads until `ready` is called."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds of a monotonic clock."""
        self._now = now
        self._lock = Lock()
        self._at = now()
        self._seconds = dict.fromkeys(Activity, 0.0)
        self._trained = 0.0
        self._blocks = 1
        self._stages = [Activity.LOADING]
        self._is_loading = True

    def ready(self) -> None:
        """The process has loaded what it needs: its training loop begins. Only the first call counts."""
        with self._lock:
            if not self._is_loading:
                return
            self._count()
            self._is_loading = False
            self._blocks -= 1
            self._stages.remove(Activity.LOADING)

    @contextmanager
    def blocked(self) -> Iterator[None]:
        """The training loop is blocked."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    @contextmanager
    def stage(self, activity: Activity) -> Iterator[None]:
        """The exchange, or what blocks the training loop, does this."""
        with self._lock:
            self._count()
            self._stages.append(activity)
        try:
            yield
        finally:
            with self._lock:
                self._count()
                # The last of its kind: a thread that ends another stage meanwhile leaves this one.
                self._stages.reverse()
                self._stages.remove(activity)
                self._stages.reverse()

    def take(self) -> tuple[int, ...]:
        """The time since the last call, as a contribution holds it."""
        with self._lock:
            self._count()
            taken, self._seconds = self._seconds, dict.fromkeys(Activity, 0.0)
        return spent_on(taken)

    def trained(self) -> float:
        """The seconds of training since the process started."""
        with self._lock:
            self._count()
            return self._trained

    def _change(self, blocks: int) -> None:
        with self._lock:
            self._count()
            self._blocks += blocks

    def _count(self) -> None:
        """Add the time since the last change to what it was spent on."""
        now = self._now()
        current = Activity.TRAINING if not self._blocks else self._stages[-1] if self._stages else Activity.EXCHANGING
        passed = max(0.0, now - self._at)
        self._seconds[current] += passed
        self._trained += passed if current is Activity.TRAINING else 0.0
        self._at = now
