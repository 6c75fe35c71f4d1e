"""A flat array in every process of a replica, each of which exchanges its part: for tests without PyTorch."""

from dataclasses import replace

import numpy as np

from muster.replica.parts.link import Link
from muster.replica.parts.packing import WHOLE, Packing
from muster.replica.wire.binary_format import Floats


class CopiedArray(Packing):
    """A flat array of which every process of the replica has a copy."""

    def __init__(self, array: Floats, link: Link) -> None:
        super().__init__({"parameters": array.shape})
        self._array, self.link = array, link

    def read(self, part: slice = WHOLE, room: Floats | None = None) -> Floats:
        return np.concatenate([self._array[held] for held, _ in self.cut.places(part)], out=room)

    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        cuts = [replace(self.cut, rank=rank) for rank in range(self.link.size)]
        counts = [sum(held.stop - held.start for held, _ in cut.places(part)) for cut in cuts]
        for cut, values in zip(cuts, self.link.swap([flat] * self.link.size, counts), strict=True):
            start = 0
            for held, _ in cut.places(part):
                self._array[held] = values[start : start + held.stop - held.start]
                start += held.stop - held.start
