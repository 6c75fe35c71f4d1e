"""One task at a time beside the training loop, in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")
_SECONDS = 1.0
"""How late a signal may be handled."""


class Background(Generic[T]):
    """Starts a task and waits for it later. The thread is a daemon: it does not keep the process alive."""

    def __init__(self) -> None:
        self._work: _Work[T] | None = None

    @property
    def busy(self) -> bool:
        """Whether a task was started that has not been waited for."""
        return self._work is not None

    @property
    def is_running(self) -> bool:
        """Whether a task was started that has not ended."""
        return self._work is not None and self._work.is_alive()

    def begin(self, function: Callable[[], T]) -> None:
        """Start `function`.

        Raises:
            RuntimeError: the last task has not been waited for.
        """
        if self._work is not None:
            message = "The last exchange is still running."
            raise RuntimeError(message)
        self._work = _Work(function)
        self._work.start()

    def wait(self) -> T | None:
        """The task's result, or raises its error; None if there is no task."""
        work = self._work
        if work is None:
            return None
        try:
            return work.outcome()
        finally:
            # A signal's error ends the wait and not the task.
            if not work.is_alive():
                self._work = None


class _Work(Thread, Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        super().__init__(name="exchange", daemon=True)
        self._function = function
        self._result: list[T] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._result.append(self._function())
        except BaseException as error:
            # `wait` raises it.
            self._error = error

    def outcome(self) -> T:
        # A signal that comes just before a wait without an end wakes nobody: its handler runs after the wait.
        while self.is_alive():
            self.join(_SECONDS)
        if self._error is not None:
            raise self._error
        return self._result[0]
