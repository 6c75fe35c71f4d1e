"""Values that must be the same in all processes, each of which may hold a part of them."""

from __future__ import annotations

import numpy as np

from muster.replica.wire.binary_format import Floats


class Pieces:
    """What processes have shown of the same values."""

    def __init__(self, count: int) -> None:
        self._values = np.zeros(count, np.float32)
        self._known = np.zeros(count, np.bool_)

    def agree(self, first: int, found: Floats) -> bool:
        """Whether `found`, the values from number `first` on, has the bits that are known; they are known from now."""
        place = slice(first, first + found.size)
        differs = self._values[place].view(np.uint32) != found.view(np.uint32)
        if bool(np.any(differs & self._known[place])):
            return False
        self._values[place], self._known[place] = found, True
        return True

    @property
    def known(self) -> Floats:
        """The values that are known, in order."""
        return self._values[self._known]

    def is_same(self, other: Pieces) -> bool:
        """Whether both have the same bits where both are known."""
        both = self._known & other._known
        return bool(np.array_equal(self._values[both].view(np.uint32), other._values[both].view(np.uint32)))
