"""Waiting for what another thread, process or service does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

SECONDS = 120.0
"""Long enough for a slow machine; only a failing test waits this long."""
_FIRST_PAUSE_SECONDS = 0.005
# A look at an embedded cloud costs it and the test milliseconds of a processor that all workers share.
_LONGEST_PAUSE_SECONDS = 0.25
_GROWTH = 1.25


def wait_until(what: str, look: Callable[[], T | None], *, seconds: float = SECONDS) -> T:
    """The first answer of `look` that is true.

    Args:
        what: what the test waits for, as the failure names it.
        look: looks once; called again and again, less often as time passes.
        seconds: how long to look.

    Raises:
        AssertionError: no answer was true in time; it names `what` and the last answer.
    """
    deadline = time.monotonic() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while not (found := look()):
        if time.monotonic() >= deadline:
            message = f"{what} did not come within {seconds:g} s; the last answer: {found!r}"
            raise AssertionError(message)
        time.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST_PAUSE_SECONDS)
    return found
