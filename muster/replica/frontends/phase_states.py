"""States in the middle of a phase, from which a replica continues that was killed: an option saves and finds them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.replica.parts.link import Link
from muster.replica.rendezvous import Rendezvous
from muster.replica.states.state_tree import Arrays, Tree


class StateId(NamedTuple):
    """From where in the training a state is: after a round, and so many inner steps. Later ones are greater.

    Step 0 is the end of the inner steps whose contribution went into the round: the replica's own state alone.
    """

    round: int
    step: int


@dataclass(frozen=True)
class Found:
    """The state from which a replica continues, and the tier that held this process's part of it."""

    id: StateId
    tier: str
    epoch: int
    state: Tree


class PhaseStates(Protocol):
    """The stored states of one process. All processes of a replica make the same calls."""

    def begin(self, round_: int, steps: int) -> None:
        """The next inner step is the one after `steps` of the phase after `round_`."""

    def after_step(
        self, id_: StateId, capture: Callable[[], Tree | None], blocked: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Save what `capture` returns, within `blocked`, if a state is due; None: none can be taken now."""

    def ended_phase(self, round_: int, capture: Callable[[], Tree]) -> Callable[[], None]:
        """At the end of the inner steps that go into `round_`: capture the replica's own state; what saves it."""

    def newest(self, last_round: int, counted: int | None) -> Found | None:
        """The newest state after the run's last committed round that every process has whole; None without one.

        Args:
            counted: the claim of this replica's contribution that counts in that round; None if that is not known.
        """

    def resumed(self, found: Found) -> None:
        """The replica continues from `found`: its contributions say so."""

    def clear(self) -> None:
        """The training is over: delete the states."""


@dataclass(frozen=True)
class StatesBetweenRounds:
    """What saves states where the spec's `checkpoints` asks for them: the seam `replica.inner_states`."""

    of: Callable[[Rendezvous, Link, Arrays, int, CheckpointTiers], PhaseStates]
    """The link connects the processes for the training loop; the number is that of the inner steps of a round."""
