"""One round as one replica sees it: its contribution, and the round's result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from muster.contract.run.commit import Commit
from muster.replica.errors import ParametersError
from muster.replica.wire.binary_format import Floats


@dataclass(frozen=True)
class LocalUpdate:
    """What a replica contributes to a round.

    Attributes:
        gradient: flat pseudo-gradient, float32: the elements that this process holds of it.
        weight: its weight in the mean: samples or tokens; those of the replica's processes are added.
        residual: the error feedback of the same elements, updated in place (see `ErrorFeedback`); None without one. It
            stays as it is if the round was committed before this replica contributed.
        before_giving: called after the contribution is encoded and before any other replica can see it; also called
            when it is too late to contribute.
        count: elements of the whole pseudo-gradient; None: `gradient` is the whole.
        norm: of the whole pseudo-gradient, if the run excludes outliers.
    """

    gradient: Floats
    weight: float
    residual: Floats | None = None
    before_giving: Callable[[], None] = lambda: None
    count: int | None = None
    norm: float | None = None


@dataclass(frozen=True)
class Outcome:
    """How a round went."""

    round: int
    """The round's number, from 1."""
    participants: tuple[int, ...]
    """The ranks whose contributions were averaged, ascending."""
    took_part: bool
    """Whether this replica's rank is among them."""


@dataclass(frozen=True)
class Exchange:
    """A committed round: its members, and the weighted mean of their contributions (bit-identical on all replicas).

    `mean` has the elements that this process holds, and is valid until the next exchange begins.
    """

    commit: Commit
    mean: Floats
    rank: int

    @property
    def share(self) -> float:
        """This rank's share of the total weight, 0 if it did not take part."""
        weights = {member.rank: member.weight for member in self.commit.members}
        return weights.get(self.rank, 0.0) / sum(weights.values())

    @property
    def took_part(self) -> bool:
        """Whether this rank is a member of the round."""
        return self.rank in {member.rank for member in self.commit.members}

    @property
    def outcome(self) -> Outcome:
        """How the round went, without its values."""
        return Outcome(self.commit.round, tuple(member.rank for member in self.commit.members), self.took_part)


def checked_samples(samples: float) -> float:
    """`samples`, a step's samples or tokens, as they count towards a contribution's weight. A step may have none.

    Raises:
        ParametersError: it is not a finite number from 0 on.
    """
    if not (math.isfinite(samples) and samples >= 0):
        message = f"samples is {samples!r}; allowed: 0 or a positive, finite number."
        raise ParametersError(message)
    return samples
