"""The weighted sum of values that arrive one member after another, run by run, while they are in the cache."""

from __future__ import annotations

import numpy as np

from muster.replica.kernel import kernel
from muster.replica.kernel.calls import ONE, Destination
from muster.replica.wire.binary_format import Floats, decoded, put_decoded
from muster.replica.wire.blocks import Blocks


class WeightedSum:
    """The sum of one run, in `target`, in the order of its terms: the same bits with the compiled kernel and without.

    A term that cannot be decoded leaves the sum as it was.
    """

    def __init__(self, target: Floats, room: Floats, *, held: bool, factor: np.float32 = ONE, terms: int = 0) -> None:
        """For the values of `target`.

        Args:
            room: of a piece of blocks, for values on their way.
            held: whether `target` holds a sum already; otherwise the first term replaces its content.
            factor: by which the sum is multiplied in the end.
            terms: how many are added before it is complete, if that is known: the last one's pass does both.
        """
        self._target = target
        self._room = room
        self._held = held
        self._factor = factor
        self._left = terms

    def add(self, values: Floats, weight: np.float32) -> None:
        """Add values that are in one row, or each block's in a row of its own, times `weight`."""
        compiled = kernel()
        if compiled is not None and values.flags.c_contiguous:
            compiled.put(values, self._place(weight))
            self._added()
            return
        # Most members have the average weight: nothing to multiply.
        if weight != 1:
            values = np.multiply(values, weight, out=self._room[: values.size].reshape(values.shape))
        into = self._target.reshape(values.shape)
        if self._held:
            into += values
        else:
            into[...] = values
        self._held = True
        self._left -= 1

    def add_records(self, key: str, body: memoryview, blocks: Blocks, run: range, weight: np.float32) -> None:
        """Add the values of one piece of blocks, times `weight`, from exactly their records.

        Raises:
            CodecError: as `decoded`.
        """
        if put_decoded(self._place(weight), key, body, blocks, run):
            self._added()
        else:
            self.add(decoded(key, body, blocks, run, self._room), weight)

    def complete(self) -> None:
        """All terms are added: the sum is in `target`."""
        if self._factor != 1:
            self._target *= self._factor

    def _place(self, weight: np.float32) -> Destination:
        """Where the next term goes, by the kernel."""
        return Destination(self._target, weight, self._factor if self._left == 1 else ONE, self._held)

    def _added(self) -> None:
        """The kernel has added a term."""
        self._held = True
        if self._left == 1:
            self._factor = ONE
        self._left -= 1
