"""Threads of a simulated process, as greenlets: exactly one runs at a time, from one request to the next.

What the replica's code takes from `threading` and `concurrent.futures` has a counterpart here: a pool whose workers
interleave in every order, futures that are waited for, and the thread of an exchange.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from greenlet import getcurrent, greenlet

if TYPE_CHECKING:
    from tests.exploration.world import Process


class Killed(BaseException):
    """The process is gone."""


class Awaited(Protocol):
    """What other activities of the same replica bring about."""

    @property
    def is_settled(self) -> bool: ...


class Activity(greenlet):  # type: ignore[misc] # it carries no types
    """One thread of a process."""

    def __init__(self, process: Process, function: Callable[[], None], label: str, inner: int = 0) -> None:
        """`inner`: the process of the replica, if it has several."""
        super().__init__(parent=process.world.scheduler)
        self.process, self.label, self.inner = process, label, inner
        self.wakes_at: float | None = None
        self.waits_for: Awaited | None = None
        self._function = function
        process.activities.append(self)

    def run(self) -> None:
        self._function()

    def pause(self, label: str, wakes_at: float | None = None, waits_for: Awaited | None = None) -> None:
        """Let others run; returns when the schedule chooses this one again."""
        process = self.process
        if process.is_dead(self.inner):
            raise Killed
        self.label, self.wakes_at, self.waits_for = label, wakes_at, waits_for
        self.parent.switch()
        if process.is_dead(self.inner):
            raise Killed
        self.waits_for = None

    @property
    def is_blocked(self) -> bool:
        """Whether it waits for another activity of its replica."""
        return self.waits_for is not None and not self.waits_for.is_settled


def current() -> Activity:
    """The activity that runs."""
    found = getcurrent()
    assert isinstance(found, Activity), "the code of a replica runs outside of its process"
    return found


class Promise:
    """The result of a task, with the part of `concurrent.futures.Future` that replicas use."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self.has_begun = False
        self.is_settled = False

    def execute(self) -> None:
        """Run the task, as a worker does."""
        self.has_begun = True
        try:
            self._result = self._function()
        except BaseException as error:
            # `result` raises it.
            self._error = error
        self.is_settled = True

    def result(self) -> Any:
        self.settle()
        if self._error is not None:
            raise self._error
        return self._result

    def settle(self) -> None:
        """Wait until the task has ended."""
        if not self.is_settled:
            current().pause("wait for a worker", waits_for=self)

    def cancel(self) -> bool:
        """Whether the task had not begun; it never will."""
        if self.has_begun:
            return False
        self.has_begun = self.is_settled = True
        return True


def settle_all(promises: Iterable[Promise]) -> None:
    """`concurrent.futures.wait`."""
    for promise in promises:
        promise.settle()


class Workers:
    """`ThreadPoolExecutor`: at most `size` tasks at a time, in an order that the schedule chooses."""

    def __init__(self, process: Process, size: int, inner: int) -> None:
        self._process, self._free, self._inner = process, size, inner
        self._queue: deque[Promise] = deque()

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Promise:
        promise = Promise(lambda: function(*args))
        self._queue.append(promise)
        self._hire()
        return promise

    def _hire(self) -> None:
        while self._free and self._queue:
            promise = self._queue.popleft()
            if not promise.has_begun:
                self._free -= 1
                # Taken by a worker: too late to cancel it.
                promise.has_begun = True
                Activity(self._process, partial(self._work, promise), "begin", self._inner)

    def _work(self, promise: Promise) -> None:
        promise.execute()
        self._free += 1
        if not self._process.is_dead(self._inner):
            self._hire()


class Serial:
    """Requests one after the other, for schedules that are written by hand."""

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Promise:
        promise = Promise(lambda: function(*args))
        promise.execute()
        return promise


class Makers:
    """The pool that a process opens for a while: `with ThreadPoolExecutor(size, name) as pool: pool.map(...)`."""

    def __init__(self, size: int, name: str) -> None:
        self._size, self._promises = size, list[Promise]()

    def __enter__(self) -> Makers:
        return self

    def map(self, function: Callable[..., Any], items: Iterable[Any]) -> Iterator[Any]:
        workers = Workers(current().process, self._size, current().inner)
        self._promises += [workers.submit(function, item) for item in items]
        return (promise.result() for promise in self._promises)

    def __exit__(self, *_: object) -> None:
        settle_all(self._promises)


class Turns:
    """`threading.Condition`: who waits looks again after the next notice."""

    def __init__(self) -> None:
        self._notice: Promise | None = None

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def wait(self) -> None:
        self._notice = self._notice or Promise(lambda: None)
        self._notice.settle()

    def notify(self) -> None:
        notice, self._notice = self._notice, None
        if notice is not None:
            notice.execute()


class Beside:
    """The thread of one exchange beside the training loop (`background._Work`)."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._promise = Promise(function)

    def start(self) -> None:
        self._promise.has_begun = True
        Activity(current().process, self._promise.execute, "begin", current().inner)

    def is_alive(self) -> bool:
        return not self._promise.is_settled

    def outcome(self) -> Any:
        return self._promise.result()
