"""Error feedback: what a codec loses of one contribution goes along with the next (arXiv 1901.09847)."""

from __future__ import annotations

import numpy as np

from muster.replica.codecs.base import Codec, Floats


class ErrorFeedback:
    """What this replica's contributions still owe the run, for each parameter: the residual.

    Encoding leaves what it loses where the values were, so `owed` is handed to `encode` as `values` and as `error`:

        owed = feedback.owed(gradient, part)
        body = encode(key, owed, header_of, codec, error=owed)

    The sum of all that was decoded and of the residual is the sum of all that was given, up to float32's rounding. A
    contribution that was left out of its round is lost with what it carried, as is all local progress of such a round.
    The residual belongs to the trainer's state after the round.
    """

    def __init__(self, codec: Codec, count: int) -> None:
        """For `count` parameters. Takes no memory where the codec loses nothing."""
        self._residual: Floats = np.zeros(count if codec.loses else 0, np.float32)

    @property
    def residual(self) -> Floats:
        """The residual, flat; without elements where the codec loses nothing. Not while a round is encoded."""
        return self._residual

    def owed(self, gradient: Floats, part: slice) -> Floats:
        """`gradient` and what is owed from before for the elements `part`, in the residual's own memory."""
        if not self._residual.size:
            return gradient
        owed = self._residual[part]
        owed += gradient
        return owed

    def forgive(self, part: slice) -> None:
        """Owe nothing for `part` any more: what was to be encoded held NaN or infinity."""
        self._residual[part] = 0

    def restore(self, residual: Floats) -> None:
        """Go on with a saved residual.

        Raises:
            ValueError: it is of another length, that is of another model or codec.
        """
        if residual.shape != self._residual.shape:
            message = f"The residual has {residual.size:,} elements where {self._residual.size:,} are expected."
            raise ValueError(message)
        self._residual[...] = residual
