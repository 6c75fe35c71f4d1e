"""Memory that codecs calculate in, kept by each thread from call to call.

What is as large as a piece of blocks comes from the system page by page, and goes back to it: that would take as long
as a third of encoding.
"""

from __future__ import annotations

from threading import local

import numpy as np
from numpy.typing import NDArray

from muster.replica.codecs.base import Floats

# Threads code pieces of one or two sizes: most of the blocks, and the rest of them.
_SIZES_MAX = 4


class Scratch:
    """Arrays of undefined content for the values of one call; the same ones for the next call of the thread."""

    def __init__(self, count: int) -> None:
        self.floats: Floats = np.empty(count, np.float32)
        self.whole = np.empty(count, np.int8)
        self.places = np.empty(count // 2, np.intp)
        """One for two values."""
        self.codes = np.empty(count // 2, np.uint8)
        self.shares = np.empty(count // 2, np.uint16)
        self.levels = np.empty(count // 4, np.uint32)
        self.decoded: Floats = np.empty(count, np.float32)
        self.starts: dict[int, NDArray[np.intp]] = {}


class _Kept(local):
    def __init__(self) -> None:
        self.by_count: dict[int, Scratch] = {}


_KEPT = _Kept()


def scratch(count: int) -> Scratch:
    """The arrays for `count` values."""
    kept = _KEPT.by_count
    found = kept.get(count)
    if found is None:
        if len(kept) == _SIZES_MAX:
            kept.clear()
        found = kept[count] = Scratch(count)
    return found
