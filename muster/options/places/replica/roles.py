"""Who does what for a shard of a round over several places. Pure.

Each place adds up what its members have contributed, in the order of their ranks, and the sums are averaged in the
order of the places' names. Whoever makes a shard of the mean has the contributions of its own place at hand, so that
place's sum of the shard is not stored: from each other place the shard's sum moves once, and to each other place the
mean.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.contract.run.commit import HOME, Commit, Member


class Roles:
    """The members of a commit by places, and their turns."""

    def __init__(self, commit: Commit) -> None:
        self._round = commit.round
        self.places = {
            place: tuple(member for member in commit.members if member.place == place)
            for place in sorted({member.place for member in commit.members})
        }
        makers = commit.makers
        self._makers = tuple(member for member in makers if member.place == HOME) or makers

    def maker(self, shard: int) -> str:
        """The place that makes a shard of the mean: home, where the run's bucket is, if a member of it stays."""
        return self._turn(self._makers, shard)[0].place

    def turns(self, place: str, shard: int) -> tuple[Member, ...]:
        """The members of a place that work on a shard, the owner first: each of the others takes over for those before.

        At the place that makes the shard of the mean they make it. At each other place they store the place's sum, and
        bring the mean.
        """
        if place == self.maker(shard):
            return tuple(member for member in self._turn(self._makers, shard) if member.place == place)
        members = self.places.get(place, ())
        return self._turn(tuple(member for member in members if not member.leaves) or members, shard)

    def _turn(self, members: Sequence[Member], shard: int) -> tuple[Member, ...]:
        """Ownership rotates by one member each round."""
        first = (shard + self._round) % len(members) if members else 0
        return (*members[first:], *members[:first])
