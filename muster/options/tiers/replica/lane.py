"""One save after another beside the training loop, and the memory that the saves share."""

from __future__ import annotations

import threading
from collections.abc import Callable

from muster.replica.states.state_tree import Room

_SPARE_BYTES = 2**16
# One that is written to the fast tier, and one to S3.
_FREE_MAX = 2


class Lane:
    """Runs one save at a time, in a thread of its own. The thread is a daemon: it does not keep the process alive."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Condition()
        self._is_running = False
        self._next: tuple[Callable[[], None], Callable[[], None]] | None = None

    @property
    def is_free(self) -> bool:
        """Whether nothing runs or waits."""
        with self._lock:
            return not self._is_running

    def run(self, save: Callable[[], None], dropped: Callable[[], None]) -> None:
        """Start `save`, or let it wait for the one that runs; one that waits already is `dropped` for it."""
        with self._lock:
            if self._is_running:
                before, self._next = self._next, (save, dropped)
                if before is not None:
                    before[1]()
                return
            self._is_running = True
        threading.Thread(target=self._work, args=(save,), name=self._name, daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait until nothing runs; whether that is so before the time is over."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._is_running, seconds)

    def _work(self, save: Callable[[], None] | None) -> None:
        while save is not None:
            save()
            with self._lock:
                following, self._next = self._next, None
                save = None if following is None else following[0]
                if save is None:
                    self._is_running = False
                    self._lock.notify_all()


class Memory:
    """The memory of captured states, used again and again: as many pieces as there are captured states at a time."""

    def __init__(self, make: Callable[[int], Room]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._free: list[Room] = []

    def take(self, size: int) -> Room:
        """A piece of at least `size` bytes."""
        with self._lock:
            fitting = next((room for room in self._free if room.size >= size), None)
            if fitting is None:
                # Too small for what is saved now: they go, so that the pieces do not add up.
                self._free.clear()
            else:
                self._free = [room for room in self._free if room is not fitting]
        # The next states may be a little larger: the last step's numbers have more digits.
        return self._make(size + size // 64 + _SPARE_BYTES) if fitting is None else fitting

    def give_back(self, room: Room) -> None:
        """It is not used any more."""
        with self._lock:
            self._free = [room, *self._free][:_FREE_MAX]
