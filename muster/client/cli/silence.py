"""Says how long nothing has answered while a run is watched: a wait survives an outage, and must not look frozen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_SECONDS = 10.0  # looks are two seconds apart, and one may take a few


@contextmanager
def telling_silence(
    tell: Callable[[float], None], quiet_seconds: float = QUIET_SECONDS
) -> Iterator[Callable[[], None]]:
    """Call `tell` every second with the seconds since the last answer, from `quiet_seconds` on.

    Yields the function that reports an answer.
    """
    heard_at, ended = [time.monotonic()], threading.Event()

    def look() -> None:
        while not ended.wait(min(1.0, quiet_seconds)):
            if (silent := time.monotonic() - heard_at[0]) >= quiet_seconds:
                tell(silent)

    thread = threading.Thread(target=look, name="silence", daemon=True)
    thread.start()
    try:
        yield lambda: heard_at.__setitem__(0, time.monotonic())
    finally:
        ended.set()
        thread.join()


def silence_text(seconds: float) -> str:
    """`no answer for 0:42, still trying`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"no answer for {minutes}:{rest:02}, still trying"


class RareLines:
    """Prints the text when it is silent for the first time, and then once a minute."""

    def __init__(self, echo: Callable[[str], None]) -> None:
        self._echo = echo
        self._next = 0.0

    def __call__(self, seconds: float) -> None:
        """It has been silent for so long."""
        if seconds < self._next - 60.0:  # something has answered since
            self._next = 0.0
        if seconds >= self._next:
            self._next = seconds + 60.0
            self._echo(silence_text(seconds))
