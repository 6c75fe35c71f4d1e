"""Memory that is free in this process and goes back to the system.

glibc raises the size from which it asks the system for memory (mmap) whenever such memory is freed, up to 32 MiB. From
then on what is freed stays with the process, and is often too scattered to be used again.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from functools import cache

import numpy as np

from muster.replica.codecs.base import Payload


def pages(size: int) -> Payload:
    """`size` bytes of undefined content, which go back to the system as soon as they are freed."""
    memory = mmap.mmap(-1, max(1, size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(memory, np.uint8, size)


def give_back() -> None:
    """Give back what is free, between exchanges: the trainer asks for it again if it needs it. Takes milliseconds."""
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], object] | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's alone
