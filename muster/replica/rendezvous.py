"""One process's place among the replicas: its seat, its rounds, its statistics, and how it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.replica.model.departure import Departure
from muster.replica.parts.link import Link
from muster.replica.rounds.phase_data import PhaseData
from muster.replica.rounds.round import Rounds
from muster.replica.rounds.round_context import RoundContext
from muster.replica.rounds.seat import Seat
from muster.replica.statistics.metrics import Metrics
from muster.replica.statistics.statistics import Statistics
from muster.replica.store.checkpoints import KEPT, Checkpoints
from muster.replica.store.transport import Store

# The state of an inner optimizer consists of averages over many steps: an older one serves as well, after a crash.
CHECKPOINT_ROUNDS = 10


@dataclass(frozen=True)
class Outside:
    """What a process has besides its rounds.

    Attributes:
        results: where the run's model is written; None: nowhere.
        checkpoint_rounds: every how many rounds large states of the trainer are saved.
        checkpoints: how often inner states are saved between rounds; None: never.
        local_states: a folder of the instance for them that is not copied to S3; None: there is none.
        joined: called once this process has loaded the run's state.
    """

    results: Store | None = None
    checkpoint_rounds: int = CHECKPOINT_ROUNDS
    checkpoints: CheckpointTiers | None = None
    local_states: Path | None = None
    joined: Callable[[], object] = lambda: None


NOTHING_ELSE = Outside()


class Rendezvous:
    """This process's place among the replicas: the first argument of every front end. One per process."""

    def __init__(self, rounds: Rounds, outside: Outside = NOTHING_ELSE) -> None:
        self.rounds, self.outside = rounds, outside
        self.seat, self.statistics = rounds.seat, rounds.statistics
        self.departure = Departure(rounds, outside.results)
        self.data = PhaseData(rounds.seen)

    @classmethod
    def open(
        cls, context: RoundContext, rank: int, attempt: int, metrics: Metrics, outside: Outside = NOTHING_ELSE
    ) -> Rendezvous:
        """Claim `rank` for this process's group; raises as `Seat.take`.

        The latest value of each of the `metrics` is sent with every contribution.
        """
        seat = Seat.take(context, rank, attempt)
        return cls(Rounds(context, seat, Statistics(metrics, context.clock.monotonic)), outside)

    @property
    def rank(self) -> int:
        """This replica's rank, from 0."""
        return self.seat.rank

    @property
    def world_size(self) -> int:
        """The number of replicas in the run; of an elastic run that of its seats."""
        return self.context.quorum.replicas

    @property
    def members(self) -> tuple[int, ...]:
        """The ranks that the next round expects by the last commit that this process has seen, ascending."""
        newest = self.rounds.seen.newest
        return tuple(self.context.quorum.first) if newest is None else tuple(sorted(newest.expected))

    @property
    def context(self) -> RoundContext:
        """The store and the run's rules."""
        return self.rounds.context

    @property
    def rounds_left(self) -> int:
        """How many rounds follow by what the trainer has said; 0 if it has not, or if the run has ended."""
        expected, training = self.statistics.rounds, self.departure.training
        if expected is None or training is None or self.rounds.seen.has_ended:
            return 0
        return max(0, expected - training.state.round)

    def connect(self, link: Link) -> None:
        """Use `link` to the other processes of this replica from now on."""
        self.rounds.context = replace(self.context, link=link)

    def checkpoints(self, folder: Path | None, kind: str, kept: int = KEPT) -> Checkpoints | None:
        """This process's own states of one kind, the large ones as often as the run saves them; None without a folder.

        The processes of a replica may share the folder: those of a group have its rank and size in their files' names.
        """
        if folder is None:
            return None
        group = self.context.group
        named = kind if group.size == 1 else f"{kind}-p{group.rank}of{group.size}"
        return Checkpoints(folder, named, self.outside.checkpoint_rounds, kept, self.rounds.seen)
