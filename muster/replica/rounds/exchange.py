"""One round as one replica sees it: its contribution, the round's result, and who judges it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, SupportsFloat

from muster.contract.run.commit import Commit, Member
from muster.contract.run.trained_data import TrainedData
from muster.replica.replica_errors import ParametersError
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.error_feedback import Residual
from muster.replica.wire.binary_format import Floats


@dataclass(frozen=True)
class LocalUpdate:
    """What a replica contributes to a round.

    Attributes:
        gradient: flat pseudo-gradient, float32: the elements that this process holds of it. Overwritten: the memory
            may hold the round's mean afterwards.
        weight: its weight in the mean: samples or tokens; those of the replica's processes are added.
        residual: the error feedback of the same elements, updated in place; None without one. It is as before unless
            the round counts this contribution.
        before_giving: called with whether the gradient can be averaged, once the contribution is encoded and before any
            other replica can see it; also when it is too late to contribute.
        state: digest of the global parameters that it is relative to; None: not compared.
        count: elements of the whole pseudo-gradient; None: `gradient` is the whole.
        exact: so many elements at the end of the whole pseudo-gradient are statistics, which are sent as float32.
        seconds: for which this process's trainer has worked on the samples; None: not known.
        suspect: why the round is made without it if that is possible; the same in all processes of the replica.
        norm: of the whole pseudo-gradient, where the others need it; None: what is sent has it.
        leaves: whether this process ends, and the next round does not expect it.
        data: the shards of the data that the replica has trained; the same in all its processes.
        measured: whether it is a trainer's update, of which metrics are logged (see `UpdateSample`).
    """

    gradient: Floats
    weight: float
    residual: Residual | None = None
    before_giving: Callable[[bool], None] = lambda _: None
    count: int | None = None
    state: str | None = None
    exact: int = 0
    seconds: float | None = None
    suspect: str | None = None
    norm: float | None = None
    leaves: bool = False
    data: TrainedData | None = None
    measured: bool = False


@dataclass(frozen=True)
class RoundOutcome:
    """How a round went."""

    round: int
    """The round's number, from 1."""
    participants: tuple[int, ...]
    """The ranks whose contributions were averaged, ascending."""
    took_part: bool
    """Whether what this replica has contributed is among them."""


@dataclass(frozen=True)
class Exchange:
    """A committed round: its members, and the weighted mean of their contributions (bit-identical on all replicas).

    Attributes:
        mean: the elements that this process holds, valid until the next exchange begins; zeros in a void round.
        epoch: the claim under which this process has contributed; None if the round was decided before that.
    """

    commit: Commit
    mean: Floats
    rank: int
    epoch: int | None = None

    @property
    def share(self) -> float:
        """This process's share of the total weight, 0 if it did not take part."""
        own = sum(member.weight for member in self.commit.members if self._is_own(member))
        return own / sum(member.weight for member in self.commit.members)

    @property
    def is_member(self) -> bool:
        """Whether this rank is a member of the round, with a contribution of this process or of a former one."""
        return any(member.rank == self.rank for member in self.commit.members)

    @property
    def took_part(self) -> bool:
        """Whether the mean has this process's contribution in it. One of a former process is of other inner steps."""
        return not self.commit.void and any(map(self._is_own, self.commit.members))

    @property
    def left_out(self) -> bool:
        """Whether the round was decided without this process: it was late, or a former process of its rank counts."""
        has_given = self.epoch is not None
        was_seen = any(map(self._is_own, self.commit.members)) or any(
            item.rank == self.rank for item in self.commit.excluded
        )
        return not (has_given and was_seen)

    @property
    def outcome(self) -> RoundOutcome:
        """How the round went, without its values."""
        members = () if self.commit.void else self.commit.members
        return RoundOutcome(self.commit.round, tuple(member.rank for member in members), self.took_part)

    def _is_own(self, member: Member) -> bool:
        return (member.rank, member.epoch) == (self.rank, self.epoch)


class Judge(Protocol):
    """Judges this replica round by round; called by its first process. Either raises WatchError to end the attempt."""

    def judge_update(self, recent: Sequence[Commit]) -> str | None:
        """Before a contribution: why the round is to be made without this replica if that is possible; None if nothing
        is wrong."""

    def judge_pace(self, claim: Claim, recent: Sequence[Commit], seconds: Sequence[float]) -> None:
        """See whether it is slow; `seconds`: for which each of its processes has worked, () if that is not known."""


def checked_samples(samples: object) -> float:
    """`samples`, a step's samples or tokens, as they count towards a contribution's weight. A step may have none.

    An array or tensor of one number is read, also on a GPU.

    Raises:
        ParametersError: it is not a finite number from 0 on.
    """
    try:
        # Text has no `__float__`.
        number = float(samples) if isinstance(samples, SupportsFloat) else None
    except (TypeError, ValueError, RuntimeError, OverflowError):
        number = None  # an array or tensor of several, or an integer that is too large
    if number is not None and math.isfinite(number) and number >= 0:
        return number
    found = f"of type {type(samples).__name__}" if number is None else number
    message = f"samples is {found}; allowed: 0 or a positive, finite number."
    raise ParametersError(message)
