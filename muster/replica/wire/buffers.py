"""Memory for what is as large as the parameters, kept from round to round.

Fresh memory comes from the system page by page, each zeroed and mapped: for a round's two large buffers that takes
about as long as coding into them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from muster.replica.codecs.base import Floats


class Buffers:
    """One process's buffers, by name. Each holds what was put there last: one user at a time."""

    def __init__(self) -> None:
        self._kept: dict[str, NDArray[np.uint8]] = {}

    def take(self, name: str, size: int) -> NDArray[np.uint8]:
        """`size` bytes that hold anything; the same as before unless more are asked for than ever."""
        kept = self._kept.get(name)
        if kept is None or kept.size < size:
            # The old one goes before the new one comes.
            self._kept.pop(name, None)
            del kept
            kept = self._kept[name] = np.empty(size, np.uint8)
        return kept[:size]

    def floats(self, name: str, count: int) -> Floats:
        """`count` float32 values that are anything, as `take`."""
        return self.take(name, 4 * count).view(np.float32)
