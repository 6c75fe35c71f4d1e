"""What a replica still owes the run because its codec loses something: kept round by round with the trainer's state."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from muster.replica.codecs.base import Codec
from muster.replica.codecs.feedback import ErrorFeedback
from muster.replica.frontends.checkpoints import Checkpoints
from muster.replica.wire.binary_format import Floats


class Owed:
    """Error feedback that comes back with the replica. Nothing is owed where the codec loses nothing."""

    def __init__(self, codec: Codec, count: int, checkpoint_dir: Path | None, round_: int) -> None:
        """What was owed after `round_`, as far as it was kept in `checkpoint_dir` (None: nowhere)."""
        self._feedback = ErrorFeedback(count) if codec.loses else None
        self._checkpoints = None if checkpoint_dir is None else Checkpoints(checkpoint_dir, "residual")
        if self._feedback is not None and self._checkpoints is not None:
            found = self._checkpoints.load(round_)
            if found is not None:
                self._feedback.residual[...] = np.frombuffer(found[1], np.float32)

    def of(self, part: slice) -> Floats | None:
        """The residual of the elements `part`, in place, for `make_contribution`."""
        return None if self._feedback is None else self._feedback.of(part)

    def save(self, round_: int) -> None:
        """Keep what is owed once the contribution to `round_` is made, before anybody can see it."""
        if self._feedback is not None and self._checkpoints is not None:
            self._checkpoints.save(round_, self._feedback.residual.data.cast("B"))
