"""The roll of one round: who is waited for, who is there, whether that is enough. Pure: told what was seen and when.

Waited for are the members of the last round, and every rank that was claimed anew since (a rerun, a restart, a
straggler that was left out and reports back). A dead replica therefore costs one grace window, once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

from muster.contract.run.commit import Commit, Exclusion, Member


class Decision(Enum):
    """What can be done about a round."""

    WAIT = "wait"
    COMMIT = "commit"
    HOPELESS = "hopeless"


@dataclass(frozen=True)
class Quorum:
    """How many must take part, and how long the others are waited for then, at most."""

    replicas: int
    min_participants: int
    grace_seconds: float


class RollCall:
    """What one replica has seen of a round so far."""

    def __init__(self, quorum: Quorum, grace_seconds: float, previous: Commit | None) -> None:
        self._quorum = quorum
        self.grace_seconds = grace_seconds
        self._since: float | None = None
        self._members: dict[int, Member] = {}
        self._excluded: dict[int, str] = {}
        self.epochs = [0] * quorum.replicas if previous is None else list(previous.epochs)
        if previous is None:
            self._expected = set(range(quorum.replicas))
        else:
            answered = {member.rank for member in previous.members} | {item.rank for item in previous.excluded}
            self._expected = answered

    def claimed(self, rank: int, epoch: int) -> None:
        """A newer process holds `rank`: what an older one gave does not count any more, the newer one is waited for."""
        if epoch <= self.epochs[rank]:
            return
        self.epochs[rank] = epoch
        self._expected.add(rank)
        self._members.pop(rank, None)
        self._excluded.pop(rank, None)

    def contributed(self, member: Member) -> None:
        """`member` gave something usable."""
        self._members[member.rank] = member

    def exclude(self, rank: int, reason: str) -> None:
        """What `rank` gave cannot be used."""
        self._excluded[rank] = reason

    @property
    def members(self) -> tuple[Member, ...]:
        """Who takes part, by rank."""
        return tuple(self._members[rank] for rank in sorted(self._members))

    @property
    def exclusions(self) -> tuple[Exclusion, ...]:
        """Who does not, and why, by rank."""
        return tuple(Exclusion(rank=rank, reason=self._excluded[rank]) for rank in sorted(self._excluded))

    @property
    def open_ranks(self) -> list[int]:
        """The ranks that have not answered."""
        return [r for r in range(self._quorum.replicas) if r not in self._members and r not in self._excluded]

    @property
    def absent(self) -> tuple[int, ...]:
        """The ranks that are waited for and have not answered."""
        return tuple(rank for rank in self.open_ranks if rank in self._expected)

    @property
    def closes_at(self) -> float:
        """When the wait for the absent ends, once `decide` has seen a quorum; infinity before."""
        return inf if self._since is None else self._since + self.grace_seconds

    def is_expected(self, rank: int) -> bool:
        """Whether `rank` is waited for."""
        return rank in self._expected

    def decide(self, now: float, *, last_call: bool = False) -> Decision:
        """What to do at `now` (seconds of a clock that only grows). On the last call a quorum waits for nobody."""
        present = len(self._members)
        if present < self._quorum.min_participants:
            self._since = None
            reachable = present + len(self.open_ranks)
            return Decision.HOPELESS if reachable < self._quorum.min_participants else Decision.WAIT
        if self._since is None:
            self._since = now
        return Decision.COMMIT if last_call or not self.absent or now >= self.closes_at else Decision.WAIT
