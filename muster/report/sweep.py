"""A sweep on its page: its replicas side by side, and their rounds in columns. Pure.

Each replica has rounds of its own, and those of the same number share a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from muster.contract.run.commit import Commit, Member
from muster.contract.run.round_values import UPDATE_METRICS
from muster.contract.spec.sweep_values import best_rank, short_names, value_text, values_of
from muster.contract.timestamps import Timestamp
from muster.report.page_model import ReplicaView, RoundsView, SweepView
from muster.report.rounds import ROUNDS_MAX, RoundTable
from muster.report.time_split import summed
from muster.report.words import UTILISATION

_COMMITS_MAX = 20_000
"""Of all replicas together: their metrics are in memory until the page is made."""
_METRICS_MAX = 8  # more columns cannot be compared at a look; the charts have all
_NOT_COMPARED = {UTILISATION, *UPDATE_METRICS, "round", "epoch", "step"}


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


def sweep_view(sweep: Mapping[str, Sequence[JsonValue]], replicas: Sequence[ReplicaView]) -> SweepView | None:
    """What a page shows of a sweep; None for a run that is none."""
    if not sweep:
        return None
    names = tuple(values_of(sweep, 0))
    last = [_metrics(replica) for replica in replicas]
    shown = _chosen(last)
    by_metric = {name: {rank: found[name] for rank, found in enumerate(last) if name in found} for name in shown}
    return SweepView(
        names=names,
        short=tuple(short_names(names).values()),
        values=tuple(tuple(map(value_text, values_of(sweep, replica.rank).values())) for replica in replicas),
        metrics=shown,
        last=tuple(tuple(found.get(name) for name in shown) for found in last),
        best=tuple(best_rank(name, by_metric[name]) for name in shown),
    )


def _metrics(replica: ReplicaView) -> dict[str, float]:
    """What the replica has logged last; of a program, what SageMaker has read from its log."""
    details = next((one.details for one in reversed(replica.attempts) if one.details is not None), None)
    read = {} if details is None else {metric.name: metric.value for metric in details.metrics}
    return {name: value for name, value in (replica.metrics or read).items() if name not in _NOT_COMPARED}


def _chosen(last: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """The metrics of most replicas; first those of which the best value is known."""
    counts = Counter(name for found in last for name in found)
    can_be_best = {name: best_rank(name, {0: 0.0, 1: 1.0}) is not None for name in counts}
    order = sorted(counts, key=lambda name: (not can_be_best[name], -counts[name], name))
    return tuple(order[:_METRICS_MAX])
