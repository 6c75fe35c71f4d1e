"""Error feedback: what a codec loses of one contribution is added to the next (arXiv 1901.09847)."""

from __future__ import annotations

import numpy as np

from muster.replica.codecs.base import Codec, Floats
from muster.replica.store.checkpoints import SMALL_BYTES, Checkpoints


class Residual:
    """The part of this replica's pseudo-gradients that no contribution has carried, for a contribution's elements.

    It is added to the contribution before that is encoded, and holds the codec's error afterwards. If no round counts
    the contribution, it is again what it was before: such a contribution leaves no trace.
    """

    def __init__(
        self, whole: Floats, part: slice, before: Floats, checkpoints: Checkpoints | None, decay: float = 1.0
    ) -> None:
        """For the elements `part` of all residuals, `whole`, which change in place.

        Args:
            decay: the share of it that is added (arXiv 2508.15706).
            before: room for a copy of them.
            checkpoints: where all residuals are saved; None: nowhere.
        """
        self.values, self.before = whole[part], before
        self.part, self._whole, self._checkpoints = part, whole, checkpoints
        self.is_lent = False  # to a contribution that no round has counted yet
        self._decay = np.float32(decay)

    def lend(self) -> None:
        """A contribution is about to be encoded."""
        self.before[...] = self.values
        if self._decay != 1:
            self.values *= self._decay
        self.is_lent = True

    def take_back(self) -> None:
        """The contribution does not count."""
        if self.is_lent:
            self.values[...] = self.before
            self.is_lent = False

    def settle(self, round_: int, *, counts: bool) -> None:
        """The round is committed. A residual that it does not count is saved: it belongs to no claim."""
        if not counts:
            self.take_back()
            if self._checkpoints is not None and self._whole.nbytes <= SMALL_BYTES:
                self._checkpoints.adopt((round_, 0), self._whole.data.cast("B"))
        self.is_lent = False

    def hand_over(self, round_: int, epoch: int) -> None:
        """The round counts what a former process of this replica has given under the claim `epoch`.

        That one began with the same residual, and has sent it: continue with what it has left, if that is stored.
        """
        found = None if self._checkpoints is None else self._checkpoints.load(round_, epoch)
        if found is not None and found[0] == round_:
            self._whole[...] = np.frombuffer(found[1], np.float32)
        else:
            self.values[...] = 0
        self.is_lent = False


class StoredErrorFeedback:
    """The residuals of all parameters, which survive a restart. Without effect for a codec that loses nothing.

    Without decay the sum of the values of all contributions that count and of the residual equals the sum of the
    pseudo-gradients of these contributions, up to float32's rounding. The residual belongs to the trainer's state after
    the round. It takes as much memory as the parameters. So does what it was before a contribution that is under way,
    of its elements.
    """

    def __init__(
        self, codec: Codec, count: int, checkpoints: Checkpoints | None, round_: int, decay: float = 1.0
    ) -> None:
        """Load the residual after `round_` from `checkpoints`, if it was saved there (None: do not save it)."""
        self._residual = np.zeros(count, np.float32) if codec.loses else None
        self._before = np.empty(0, np.float32)  # of the largest part
        self._checkpoints = checkpoints
        self._lent: Residual | None = None
        self._decay = decay
        if self._residual is not None and checkpoints is not None:
            # A contribution that counts has carried all older ones: they would be sent twice.
            found = checkpoints.of_last_counted(round_)
            if found is not None:
                self._residual[...] = np.frombuffer(found, np.float32)

    @property
    def values(self) -> Floats | None:
        """All residuals, in place; None for a codec that loses nothing."""
        return self._residual

    def of(self, part: slice) -> Residual | None:
        """The residual of the next contribution, of the elements `part`; None for a codec that loses nothing."""
        if self._residual is None:
            return None
        size = self._residual[part].size
        if self._before.size < size:
            self._before = np.empty(size, np.float32)
        self._lent = Residual(self._residual, part, self._before[:size], self._checkpoints, self._decay)
        return self._lent

    def save(self, round_: int, *, always: bool = False) -> None:
        """Save the residual once the contribution to `round_` is encoded, before other replicas can see it.

        A large one is saved in some rounds only, or `always`.
        """
        if self._residual is None or self._checkpoints is None:
            return
        if self._checkpoints.is_due(round_, is_small=self._residual.nbytes <= SMALL_BYTES) or always:
            self._checkpoints.save(round_, self._residual.data.cast("B"))

    def before(self) -> Floats | None:
        """A copy of the residual without what a contribution that no round has counted yet has changed."""
        if self._residual is None:
            return None
        copy = self._residual.copy()
        if self._lent is not None and self._lent.is_lent:
            copy[self._lent.part] = self._lent.before
        return copy

    def restore(self, residual: Floats | None) -> None:
        """Continue with `residual`; None changes nothing."""
        if self._residual is not None and residual is not None:
            self._residual[...] = residual
