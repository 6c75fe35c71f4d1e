"""The rounds of a sweep in columns: each replica has rounds of its own, and those of the same number share a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.contract.run.commit import Commit, Member
from muster.contract.timestamps import Timestamp
from muster.report.page_model import RoundsView
from muster.report.rounds import ROUNDS_MAX, RoundTable
from muster.report.time_split import summed

_COMMITS_MAX = 20_000
"""Of all replicas together: their metrics are in memory until the page is made."""


def own_rounds_max(replicas: int) -> int:
    """How many commits of each of so many replicas a page reads."""
    return min(ROUNDS_MAX, _COMMITS_MAX // max(1, replicas))


class SweepRounds:
    """Collects the columns from the commits of each replica, which come in the order of its rounds."""

    def __init__(self, replicas: int, started_at: str) -> None:
        self._replicas = replicas
        self._started_at = started_at
        self._members: dict[int, dict[int, Member]] = {}  # by round and rank
        self._at: dict[int, Timestamp] = {}  # when a round was first committed
        self._newest: dict[int, Commit] = {}
        self._last: list[tuple[int, int | None, Mapping[str, float]]] = []

    @property
    def latest(self) -> int:
        """Grows with every round that is added."""
        return sum(commit.round for commit in self._newest.values())

    def add(self, commit: Commit) -> None:
        """Add a round of the replica that is its only member (`Commit.of_rank`)."""
        member = commit.members[0]
        if member.rank >= self._replicas:
            return
        # The others' rounds take place at other times: what a replica did in one cannot share a row with them.
        self._members.setdefault(commit.round, {})[member.rank] = member.model_copy(update={"time": ()})
        self._at.setdefault(commit.round, commit.committed_at)
        before = self._newest.get(member.rank)
        if before is None or commit.round > before.round:
            self._newest[member.rank] = commit

    def add_last(self, left: Iterable[tuple[int, int | None, Mapping[str, float]]]) -> None:
        """What replicas have logged until their end, which no contribution carries: rank, last round, metrics."""
        self._last = list(left)

    def view(self, unread: int = 0) -> RoundsView:
        """The columns as a page shows them; `unread` commits could not be read."""
        table = RoundTable(self._replicas, self._started_at)
        for round_, members in sorted(self._members.items()):
            by_rank = tuple(member for _, member in sorted(members.items()))
            table.add(Commit(run="", round=round_, committed_at=self._at[round_], count=1, members=by_rank, epochs=()))
        table.add_last(self._last)
        newest = list(self._newest.values())
        counted = [commit.samples for commit in newest if commit.samples is not None]
        expected = [commit.expected_rounds for commit in newest if commit.expected_rounds is not None]
        return table.view(unread).model_copy(
            update={
                "samples": sum(counted) if counted else None,
                "expected": max(expected, default=None),
                "unit": newest[-1].unit if newest else "samples",
                "time_use": summed(commit.time_use for commit in newest),
                # Each replica has its own times for a round.
                "at": (),
                "seconds": (None,) * len(self._members),
                "rates": (),
                "waited_for": (),
            }
        )
