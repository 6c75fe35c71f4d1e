"""The inner phase of a replica that was asked to stop: saved beside its own state, and continued after the restart."""

from __future__ import annotations

import io
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from muster.replica.parts.link import Link
from muster.replica.store.checkpoints import Checkpoints
from muster.replica.wire.binary_format import Floats


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What a process held when its replica was asked to stop in the middle of an inner phase.

    Attributes:
        round: the last round whose mean the global parameters held.
        given: the round to which the replica has given the phase, with its state after it. If the run is still in
            `round`, that contribution counts for no round: the phase continues. If it is further, the phase is over.
        epoch: the claim under which it has given the phase.
        steps: inner steps since the last merge.
        samples: for each fragment, samples of the steps since it was last exchanged.
        parameters: the trainer's own parameters, flat: of the elements that this process holds.
        begun: where the phase started, if not at the global parameters (eager updates).
        residual: the codec's residual before the phase was given; None for a codec that loses nothing.
        data: the shards of the data that the phase has trained, as `PhaseData` packs them; None without shards.
    """

    round: int
    given: int
    epoch: int
    steps: int
    samples: NDArray[np.float64]
    parameters: Floats
    begun: Floats | None = None
    residual: Floats | None = None
    data: NDArray[np.int64] | None = None


class StoredPhase:
    """The phase of this process's replica in its checkpoints; at most one."""

    def __init__(self, checkpoints: Checkpoints | None) -> None:
        """`checkpoints`: None if nothing is saved."""
        self._checkpoints = checkpoints

    def save(self, phase: Phase) -> None:
        """Store `phase` in place of an earlier one."""
        if self._checkpoints is not None:
            self._checkpoints.save(phase.round, packed_phase(phase))

    def load(self, link: Link, round_: int) -> Phase | None:
        """The phase that was interrupted after `round_`, if all processes of the replica have it."""
        if self._checkpoints is None:
            return None
        found = self._checkpoints.load(round_)
        phase = None if found is None else unpacked_phase(found[1])
        answers = link.gather(None if phase is None else (phase.round, phase.given, phase.epoch, phase.steps))
        return phase if phase is not None and phase.round == round_ and len(set(answers)) == 1 else None

    def discard(self) -> None:
        """Forget the phase: its round is over, or it ended in values that cannot be averaged."""
        if self._checkpoints is not None:
            self._checkpoints.discard()


def packed_phase(phase: Phase) -> bytes:
    """A phase as it is stored."""
    file = io.BytesIO()
    np.savez(file, **{name: value for name, value in vars(phase).items() if value is not None})
    return file.getvalue()


def unpacked_phase(body: bytes) -> Phase:
    """The phase that `packed_phase` made the bytes of."""
    with np.load(io.BytesIO(body), allow_pickle=False) as file:
        found = {field.name: file[field.name] for field in fields(Phase) if field.name in file}
    return Phase(**{name: value if value.ndim else value.item() for name, value in found.items()})
