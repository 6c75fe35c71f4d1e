"""Error feedback: what a codec loses of one contribution goes along with the next (arXiv 1901.09847)."""

from __future__ import annotations

import numpy as np

from muster.replica.codecs.base import Floats


class ErrorFeedback:
    """What this replica's contributions still owe the run, for each parameter: the residual.

    To contribute is to add the pseudo-gradient to the residual, to encode that, and to leave there what was lost:

        owed = feedback.of(part)
        owed += gradient
        body = encode(key, owed, header_of, codec, error=owed)

    The sum of all that was decoded and of the residual is the sum of all that was given, up to float32's rounding. A
    contribution that was left out of its round is lost with what it carried, as is all local progress of such a round.
    The residual belongs to the trainer's state after the round. It takes as much memory as the parameters.
    """

    def __init__(self, count: int) -> None:
        """For `count` parameters; owes nothing yet."""
        self.residual: Floats = np.zeros(count, np.float32)

    def of(self, part: slice) -> Floats:
        """The residual of the elements `part`, in place."""
        return self.residual[part]
