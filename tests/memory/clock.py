"""Virtual time: it passes only when a test, or the code under test by sleeping, lets it pass."""

import heapq
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from muster.control.runtime import clock as control_clock

START = datetime(2026, 1, 1, tzinfo=UTC)


class VirtualClock:
    """A clock that stands still until it is advanced.

    Threads that sleep at once may sleep together or one after another, as they meet.
    """

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._now = start
        self._order = itertools.count()
        self._due: list[tuple[datetime, int, Callable[[], None]]] = []
        # Never held while an action is done: an action may wait for threads that sleep themselves.
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """The time, in UTC."""
        return self._now

    def utc_now(self) -> datetime:
        """The time, as the control plane asks for it."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made, in place of time.monotonic."""
        return (self._now - self._start).total_seconds()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass, in place of time.sleep."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass. What is due in between happens in its order, each at its own time.

        Raises:
            ValueError: `seconds` is negative; time does not go back.
        """
        if seconds < 0:
            message = f"time cannot go back by {-seconds} s"
            raise ValueError(message)
        end = self._now + timedelta(seconds=seconds)
        while (action := self._next(end)) is not None:
            action()

    def at(self, due: datetime, action: Callable[[], None]) -> None:
        """Do `action` when time reaches `due`; at the next `advance` where that has passed."""
        with self._lock:
            heapq.heappush(self._due, (due, next(self._order), action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do `action` when `seconds` have passed."""
        self.at(self._now + timedelta(seconds=seconds), action)

    def _next(self, end: datetime) -> Callable[[], None] | None:
        """Go to the next time until `end` at which something is due; to `end` where nothing is."""
        with self._lock:
            if self._due and self._due[0][0] <= end:
                due, _, action = heapq.heappop(self._due)
            else:
                due, action = end, None
            # What was due before it was scheduled happens now, and an action may itself have let time pass.
            self._now = max(self._now, due)
            return action

    @contextmanager
    def install(self) -> Iterator[None]:
        """Make this the control plane's clock while the context lasts."""
        with control_clock.replaced(self):
            yield


class TickingClock(VirtualClock):
    """A clock on which a second passes each time it is read: what takes long, without waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def monotonic(self) -> float:
        """The seconds: as many as there were looks before."""
        self.reads += 1
        return self.reads - 1.0


class SkewedClock:
    """The clock of a machine that is `seconds` ahead of the others, or behind them."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = timedelta(seconds=seconds)

    def utc_now(self) -> datetime:
        """The time that this machine believes."""
        return self._clock.now() + self._seconds

    def monotonic(self) -> float:
        """Durations are right on every machine."""
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self._clock.sleep(seconds)
