"""Error feedback: what a codec loses of one contribution is added to the next (arXiv 1901.09847)."""

from __future__ import annotations

import numpy as np

from muster.replica.codecs.base import Codec, Floats
from muster.replica.store.checkpoints import SMALL_BYTES, Checkpoints


class ErrorFeedback:
    """The residual: for each parameter, the part of this replica's pseudo-gradients that no contribution has carried.

    To contribute, add the pseudo-gradient to the residual, encode the sum, and keep the codec's error:

        residual = feedback.of(part)
        residual += gradient
        body = encode(key, residual, header_of, Encoding(codec, error=residual))

    The sum of all decoded values and the residual equals the sum of all pseudo-gradients, up to float32's rounding. A
    contribution that was left out of its round is lost with its residual, like all local progress of that round. The
    residual belongs to the trainer's state after the round. It takes as much memory as the parameters.
    """

    def __init__(self, count: int) -> None:
        """For `count` parameters; the residual starts at zero."""
        self.residual: Floats = np.zeros(count, np.float32)

    def of(self, part: slice) -> Floats:
        """The residual of the elements `part`, in place."""
        return self.residual[part]


class StoredErrorFeedback:
    """Error feedback that survives a restart of the replica. Without effect for a codec that loses nothing."""

    def __init__(self, codec: Codec, count: int, checkpoints: Checkpoints | None, round_: int) -> None:
        """Load the residual after `round_` from `checkpoints`, if it was saved there (None: do not save it)."""
        self._feedback = ErrorFeedback(count) if codec.loses else None
        self._checkpoints = checkpoints
        if self._feedback is not None and self._checkpoints is not None:
            found = self._checkpoints.load(round_)
            # The contributions since have carried an older one already: it would be sent twice.
            if found is not None and found[0] == round_:
                self._feedback.residual[...] = np.frombuffer(found[1], np.float32)

    def of(self, part: slice) -> Floats | None:
        """The residual of the elements `part`, in place, for `LocalUpdate`; None for a codec that loses nothing."""
        return None if self._feedback is None else self._feedback.of(part)

    def save(self, round_: int, *, always: bool = False) -> None:
        """Save the residual once the contribution to `round_` is encoded, before other replicas can see it.

        A large one is saved in some rounds only, or `always`.
        """
        if self._feedback is None or self._checkpoints is None:
            return
        residual = self._feedback.residual
        if self._checkpoints.is_due(round_, is_small=residual.nbytes <= SMALL_BYTES) or always:
            self._checkpoints.save(round_, residual.data.cast("B"))

    def copy(self) -> Floats | None:
        """A copy of the residual; None for a codec that loses nothing."""
        return None if self._feedback is None else self._feedback.residual.copy()

    def restore(self, residual: Floats | None) -> None:
        """Continue with `residual` (None: with none)."""
        if self._feedback is not None:
            self._feedback.residual[...] = 0 if residual is None else residual
