"""What comes of a round."""

from __future__ import annotations

from dataclasses import dataclass

from muster.contract.run.commit import Commit
from muster.replica.wire.binary_format import Floats


@dataclass(frozen=True)
class Outcome:
    """How a round went: who took part in it, and whether this rank did."""

    round: int
    participants: tuple[int, ...]
    took_part: bool


@dataclass(frozen=True)
class Exchange:
    """A round as it was agreed: who took part, and the weighted mean of what they gave (the same bits for all).

    `mean` holds until the next exchange begins.
    """

    commit: Commit
    mean: Floats
    rank: int

    @property
    def share(self) -> float:
        """This rank's weight in the mean, 0 where it did not take part."""
        weights = {member.rank: member.weight for member in self.commit.members}
        return weights.get(self.rank, 0.0) / sum(weights.values())

    @property
    def took_part(self) -> bool:
        """Whether this rank did."""
        return self.rank in {member.rank for member in self.commit.members}

    @property
    def outcome(self) -> Outcome:
        """How the round went, without its values."""
        return Outcome(self.commit.round, tuple(member.rank for member in self.commit.members), self.took_part)
