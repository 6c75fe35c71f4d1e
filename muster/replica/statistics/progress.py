"""How far a process has come: what the training loop notes, and the watch reads from another thread.

A note costs the training loop less than a microsecond: it sets attributes, and takes no lock. A reader may see one note
without the next one, which shifts a time by less than a step.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_FRAMES = 3


class Progress:
    """The progress of this process."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: seconds of a monotonic clock."""
        self._now = now
        self.noted_at = now()
        """When the last sign of progress was noted."""
        self._round_at = now()
        self._thread = threading.get_ident()
        self._waits = 0
        self.is_over = False
        """Whether no step and no round follows: the replica has left the run."""
        self.steps = 0
        """Inner steps since the process started."""
        self.round = 0
        """The last round that the process has seen."""
        self.missing = ""
        """What the round at hand waits for, while this process waits for it."""

    def step(self) -> None:
        """The training loop has made an inner step."""
        self._thread = threading.get_ident()
        self.steps += 1
        self.noted_at = self._now()

    def alive(self) -> None:
        """The trainer works on something else than a step, and gets on with it."""
        self.noted_at = self._now()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The training loop is in an exchange, whose waits have limits of their own."""
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            self.noted_at = self._now()

    def committed(self, round_: int) -> None:
        """The process has seen the commit of a round."""
        self.round = round_
        self.missing = ""
        self._round_at = self._now()

    @property
    def is_waiting(self) -> bool:
        """Whether the training loop is in an exchange."""
        return self._waits > 0

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last sign of progress."""
        return self._now() - self.noted_at

    @property
    def seconds_without_round(self) -> float:
        """Seconds since this process has seen a commit; before the first one, since it started."""
        return self._now() - self._round_at

    def place(self) -> str:
        """Where the training loop is, the innermost call first: `queue.py:171 in get < train.py:40 in train`."""
        frame = sys._current_frames().get(self._thread)
        found: list[str] = []
        while frame is not None and len(found) < _FRAMES:
            code = frame.f_code
            found.append(f"{Path(code.co_filename).name}:{frame.f_lineno} in {code.co_name}")
            frame = frame.f_back
        return " < ".join(found)
