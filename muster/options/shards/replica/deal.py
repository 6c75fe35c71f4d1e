"""Who trains which shard next: it follows from the last commit alone, so that nobody has to ask or to lock. Pure.

- Whoever has just trained a part of a use goes on with it.
- The n ranks that the next round expects take every n-th of the other open uses. Another one begins each round, so that
  a use cannot be left to a rank that never counts.
- A rank that has joined begins behind what they will need by the last round. If it is wrong, the others' work counts.
- Towards the end of the last epoch there are fewer open uses than ranks. A rank without one trains one of another rank
  as well, in case that one fails. Of the two one counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from muster.contract.run.commit import Commit
from muster.contract.run.trained_data import PIECES_MAX, DataProgress, Turn, Use
from muster.replica.rounds.phase_data import Lane
from muster.replica.rounds.quorum import Quorum

DEALT = 2 * PIECES_MAX  # where training goes on during an exchange, two rounds' pieces are taken from one deal


@dataclass(frozen=True)
class Place:
    """A rank in the next round.

    Attributes:
        expected: the ranks that the round expects, ascending.
        seats: how many ranks the run has.
        round: the last round.
        most: how many uses a member of it has named at most.
    """

    rank: int
    expected: tuple[int, ...]
    seats: int
    round: int = 0
    most: int = 1

    @classmethod
    def after(cls, commit: Commit | None, rank: int, quorum: Quorum) -> Place:
        """The place of `rank` after the last commit."""
        seats = quorum.replicas
        if commit is None:
            return cls(rank, tuple(quorum.first), seats)
        most = max((len(member.data.pieces) for member in commit.members if member.data is not None), default=1)
        return cls(rank, tuple(sorted(commit.expected)), seats, commit.round, most)


def dealt(progress: DataProgress, place: Place, stop: Use) -> Lane:
    """What the rank trains next of the uses before `stop`."""
    items = {item.use: item.items for item in progress.begun}
    held = {item.use: item.holder for item in progress.begun if item.holder in place.expected}
    mine = [use for use, holder in held.items() if holder == place.rank]
    stop = min(stop, progress.window(place.seats))
    free = (use for use in progress.open(stop) if use not in held)
    number = len(place.expected)
    if place.rank in place.expected:
        turn, first, step = Turn.DEALT, (place.expected.index(place.rank) + place.round) % number, number
    else:
        turn, first, step = Turn.JOINED, number * (2 * place.most + 1) + place.rank, place.seats
    uses = [*sorted(mine, key=lambda use: (not items[use], use)), *islice(free, first, None, step)][:DEALT]
    if not uses and (left := list(progress.open(stop))):
        turn, uses = Turn.SPARE, [left[-1 - place.rank % len(left)]]
    return Lane(tuple((use, items.get(use, 0)) for use in uses), turn)


def order(length: int, *seeds: int) -> NDArray[np.int64]:
    """A permutation that is the same on every machine. A generator's own methods may change with NumPy's version."""
    drawn = np.random.PCG64(np.random.SeedSequence(seeds)).random_raw(length)
    return np.argsort(drawn, kind="stable").astype(np.int64)
