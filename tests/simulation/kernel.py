"""Activities in virtual time: functions, executions, lives of jobs. One runs at a time, until it waits.

Each is a greenlet: the synchronous code of the control plane is switched at its calls, without threads.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from greenlet import getcurrent, greenlet

START = datetime(2026, 1, 1, tzinfo=UTC)


class Killed(BaseException):
    """The activity is over: no code of it runs any more."""


class Activity:
    """Something that goes on beside others. `owner` is what it belongs to, an invocation for instance."""

    __slots__ = ("_kernel", "_switch", "ended", "error", "name", "owner", "value", "waiters", "waiting")

    def __init__(self, kernel: Kernel, name: str, run: Callable[[], Any], owner: Any, *, is_asked: bool) -> None:
        self._kernel = kernel
        self.name = name
        self.owner = owner
        self.ended = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.waiting = 0
        self.waiters: list[Callable[[], None]] = []

        def live(_: Any = None) -> None:
            try:
                self.value = run()
            except Killed as error:
                self.error = error
            except BaseException as error:
                self.error = error
                if not is_asked:
                    kernel.broken = error
            self._end()

        self._switch = greenlet(live, kernel.hub)
        kernel.living[self] = None

    def resume(self, killed: bool = False) -> None:
        """Let it run until it waits. Called in the hub only."""
        self._kernel.current = self
        if killed:
            if self._switch:
                self._switch.throw(Killed())
            else:  # it has not begun
                self.error = Killed()
                self._end()
        else:
            self._switch.switch()
        self._kernel.current = None

    def _end(self) -> None:
        self.ended = True
        self._kernel.living.pop(self, None)
        for waiter in self.waiters:
            waiter()


class Kernel:
    """Time, and what is due when."""

    def __init__(self) -> None:
        self.hub = getcurrent()
        self.seconds = 0.0
        self.current: Activity | None = None
        self._order = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.steps = 0
        self._until = 0.0
        self._most = 0
        self.broken: BaseException | None = None
        """An error of an activity whose result is not asked for: the simulation itself is at fault."""
        self.living: dict[Activity, None] = {}

    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def at(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something at a time; it must not wait."""
        self._order += 1
        heapq.heappush(self._due, (max(seconds, self.seconds), self._order, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something after so many seconds; it must not wait."""
        self.at(self.seconds + seconds, action)

    def spawn(
        self, name: str, run: Callable[[], Any], delay: float = 0.0, owner: Any = None, *, is_asked: bool = False
    ) -> Activity:
        """Begin an activity. `is_asked`: its result is asked for, also where that is an error."""
        activity = Activity(self, name, run, owner, is_asked=is_asked)
        self.after(delay, lambda: None if activity.ended else activity.resume())
        return activity

    def sleep(self, seconds: float) -> None:
        until = self.seconds + max(0.0, seconds)
        if until <= self._until and (not self._due or self._due[0][0] > until) and self.steps < self._most:
            # Nothing happens meanwhile: time passes without a switch, as it would with two of them.
            self.seconds = until
            self.steps += 1
            return
        self.at(until, self._ticket())
        self.hub.switch()

    def park(self) -> Callable[[], None]:
        """Prepare the current activity to wait: what it returns wakes it, and `wait` waits."""
        resume = self._ticket()
        return lambda: self.after(0.0, resume)

    def _ticket(self) -> Callable[[], None]:
        """What resumes the current activity from its next wait, and from no later one."""
        activity = self.current
        assert activity is not None, "only an activity waits"
        activity.waiting += 1
        ticket = activity.waiting

        def resume() -> None:
            if not activity.ended and activity.waiting == ticket:
                activity.resume()

        return resume

    def wait(self) -> None:
        """Wait until what `park` returned is called."""
        self.hub.switch()

    def join(self, activity: Activity) -> None:
        if not activity.ended:
            activity.waiters.append(self.park())
            self.wait()

    def kill(self, activity: Activity) -> None:
        if activity.ended:
            return
        activity.waiting += 1
        self.after(0.0, lambda: None if activity.ended else activity.resume(killed=True))

    def run(self, until: float, most: int) -> bool:
        """Let time pass until nothing is due any more, or until a time. False: there were more than `most` steps."""
        due, self._until, self._most = self._due, until, most
        while due and due[0][0] <= until:
            seconds, _, action = heapq.heappop(due)
            self.seconds = seconds
            self.steps += 1
            if self.steps > most:
                return False
            action()
            if self.broken is not None:
                raise self.broken
        self.seconds = max(self.seconds, until) if due else self.seconds
        return True

    def close(self) -> None:
        for activity in list(self.living):
            if not activity.ended:
                activity.resume(killed=True)
        self._due.clear()
