"""The rounds of a run in columns, small enough for a page: metrics merged for each round, and metrics of each rank.

A contribution carries the metrics that its replica has logged until then, most of them after the round before. Each is
shown at the round in which it was logged. What was logged after the last round is in the replica's manifest.

Replicas write the commits, so their contents are not trusted: ranks that the run does not have, values that are not
numbers and metrics above the limit of a contribution are left out.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from muster.contract.run.commit import Commit, Member
from muster.contract.run.round_values import METRICS_MAX
from muster.contract.timestamps import seconds_between
from muster.report.page_model import MetricView, RoundsView
from muster.report.time_split import measured
from muster.report.time_table import TimeTable
from muster.report.words import UTILISATION

_T = TypeVar("_T")

# A page reads at most so many commits, spread evenly over the run; a screen cannot show more.
ROUNDS_MAX = 500
# So many contributions are read in less than a minute. Of large runs fewer commits are read, but at least so many.
_CONTRIBUTIONS_MAX, _ROUNDS_MIN = 2_000_000, 100
# Bytes for the values of all ranks and metrics. Base64 adds a third.
CELLS_MAX = 600_000
# Bytes in memory for these values while the commits are read, at 4 bytes each: a commit that names one rank takes as
# much as one that names all.
_VALUES_MAX = 256_000_000
_STORE_SECONDS = 1.0
_FLOAT_MAX = 3e38  # of four bytes
_NONE = 255
_STEPS = 254


@dataclass
class _Column:
    """One metric in the rounds seen so far: `values` round by round, NaN for none."""

    values: array[float]
    mean: list[float | None] = field(default_factory=list)
    low: list[float | None] = field(default_factory=list)
    high: list[float | None] = field(default_factory=list)


def rounds_max(replicas: int) -> int:
    """How many commits a page of a run with so many replicas reads."""
    return max(_ROUNDS_MIN, min(ROUNDS_MAX, _CONTRIBUTIONS_MAX // max(1, replicas)))


def chosen(keys: Sequence[_T], most: int = ROUNDS_MAX) -> list[_T]:
    """At most `most` of the sorted `keys`, evenly spread, the first and the last one among them."""
    if len(keys) <= most:
        return list(keys)
    last = len(keys) - 1
    return [keys[index * last // (most - 1)] for index in range(most)]


class RoundTable:
    """Collects the columns from commits in the order of their rounds. It does not keep the commits."""

    def __init__(self, replicas: int, started_at: str) -> None:
        self._replicas = replicas
        self._ranks = 0  # that have ever been members: the lowest ones, of a run with many seats few
        self._started_at = started_at
        self._numbers: list[int] = []
        self._at: list[float] = []
        self._members: list[int] = []
        self._excluded: list[int] = []
        self._absent: list[int] = []
        self._counted: list[float] = []
        self._newest: Commit | None = None
        self._columns: dict[str, _Column] = {}
        self._weights = array("f")  # of each rank in each round; 0 where it is no member
        self._times = TimeTable(replicas)
        self._waited_for: list[int | None] = []
        self._columns_max = max(1, min(METRICS_MAX, _VALUES_MAX // (4 * ROUNDS_MAX * max(1, replicas))))

    @property
    def latest(self) -> int:
        """The latest round that was added; 0 before the first."""
        return self._numbers[-1] if self._numbers else 0

    def add(self, commit: Commit) -> None:
        """Add a round. One that is not later than the latest is ignored."""
        if commit.round <= self.latest:
            return
        try:
            at = seconds_between(self._started_at, commit.committed_at)
        except (ValueError, TypeError):
            at = self._at[-1] if self._at else 0.0
        index = len(self._numbers)
        self._numbers.append(commit.round)
        self._at.append(at)
        self._members.append(len(commit.members))
        self._counted.append(commit.counted)
        # Its parts that a page shows: of many replicas the members take megabytes.
        self._newest = commit.model_copy(update={"members": commit.members[:1], "epochs": ()})
        self._excluded.append(len(commit.excluded))
        self._absent.append(len(commit.absent))
        weights = array("f", bytes(4 * self._replicas))
        members = [member for member in commit.members if member.rank < self._replicas]
        for member in members:
            weights[member.rank] = member.weight
            self._ranks = max(self._ranks, member.rank + 1)
        self._weights.extend(weights)
        waited_for = commit.waited_for
        self._waited_for.append(waited_for if waited_for is not None and waited_for < self._replicas else None)
        rounds = commit.round - self._numbers[-2] if index else 1
        seconds = at - self._at[-2] if index else at if commit.round == 1 else 0.0
        self._times.add(commit, seconds, rounds)
        for column in self._columns.values():
            self._lengthen(column)
        changed: set[tuple[str, int]] = set()
        for member in members:
            changed.update(self._place(member, commit.round))
        for name, row in changed:
            self._recount(self._columns[name], row)

    def add_last(self, left: Iterable[tuple[int, int | None, Mapping[str, float]]]) -> None:
        """Add what replicas have logged until their end, which no contribution carries: rank, last round, metrics.

        A metric with the value that it had before is an old one, unless it was logged in both rounds before.
        """
        row = len(self._numbers) - 1
        found: set[str] = set()
        for rank, round_, metrics in left:
            if row < 0 or round_ != self.latest or not 0 <= rank < self._replicas:
                continue
            at = row * self._replicas + rank
            for name, value in metrics.items():
                column = self._columns.get(name)
                if column is None or not math.isnan(column.values[at]) or not abs(value) < _FLOAT_MAX:
                    continue
                before = column.values[rank : at : self._replicas]
                is_regular = len(before) > 1 and not math.isnan(before[-1] + before[-2])
                if is_regular or array("f", [value])[0] not in before:
                    column.values[at] = value
                    found.add(name)
        for name in found:
            self._recount(self._columns[name], row)

    def _place(self, member: Member, round_: int) -> Iterable[tuple[str, int]]:
        """Store a member's metrics; the name and the row of each."""
        ages = member.logged if len(member.logged) == len(member.metrics) else (0,) * len(member.metrics)
        for name, age in zip(sorted(member.metrics), ages, strict=True):
            row = self._row_of(round_ - age)
            if name == "round" or row is None:
                continue
            column = self._columns.get(name)
            if column is None:
                if len(self._columns) >= self._columns_max and name != UTILISATION:
                    continue
                column = self._columns[name] = _Column(array("f"))
                self._lengthen(column)
            value = member.metrics[name]
            column.values[row * self._replicas + member.rank] = value if abs(value) < _FLOAT_MAX else math.nan
            yield name, row

    def _row_of(self, round_: int) -> int | None:
        """The row that shows a round: its own, or that of the next one that was read; None for one before the first."""
        if round_ == self._numbers[-1]:
            return len(self._numbers) - 1
        row = bisect_left(self._numbers, round_)
        return row if row or round_ == self._numbers[0] else None

    def _lengthen(self, column: _Column) -> None:
        """Add the rows that a column lacks."""
        missing = len(self._numbers) - len(column.mean)
        column.values.extend(array("f", [math.nan]) * (self._replicas * missing))
        for values in (column.mean, column.low, column.high):
            values.extend([None] * missing)

    def _recount(self, column: _Column, row: int) -> None:
        """The mean of a row, with the weights of its round, its smallest and its largest value."""
        span = slice(row * self._replicas, (row + 1) * self._replicas)
        pairs = zip(column.values[span], self._weights[span], strict=True)
        found = [(value, weight) for value, weight in pairs if value == value]  # noqa: PLR0124 - not NaN
        if not found:
            return
        weight = sum(weight for _, weight in found)
        shares = [share / weight if weight else 1 / len(found) for _, share in found]
        column.mean[row] = _short(sum(value * share for (value, _), share in zip(found, shares, strict=True)))
        column.low[row], column.high[row] = _short(min(found)[0]), _short(max(found)[0])

    def view(self, unread: int = 0) -> RoundsView:
        """The columns as a page shows them; `unread` commits could not be read."""
        seconds = self._seconds()
        newest = self._newest
        speed: dict[str, Any] = (
            {}
            if newest is None
            else {
                "unit": newest.unit,
                "samples": newest.samples,
                "crossed_bytes": newest.crossed_bytes,
                "data": newest.data_shown,
                "expected": newest.expected_rounds,
                "last_at": newest.committed_at,
                "pace": newest.pace and newest.pace.of_replicas(self._replicas),
                "time_use": measured(newest, self._replicas),
            }
        )
        return RoundsView(
            total=self.latest,
            numbers=tuple(self._numbers),
            at=tuple(round(value, 3) for value in self._at),
            seconds=tuple(seconds),
            times=self._times.view(),
            waited_for=tuple(self._waited_for),
            members=tuple(self._members),
            excluded=tuple(self._excluded),
            absent=tuple(self._absent),
            # The first round began with the launch.
            rates=tuple(map(_rate, self._counted, [None, *seconds[1:]])),
            unread=unread,
            metrics=tuple(self._metrics()),
            **speed,
        )

    def _seconds(self) -> list[float | None]:
        """The duration of each round. The first one begins with the run; of a continuation it is not known."""
        pairs = zip(self._numbers, self._numbers[1:], self._at, self._at[1:], strict=False)
        first = _short(self._at[0]) if self._numbers[:1] == [1] and self._at[0] >= 0 else None
        found = [first, *(_short(max(0.0, (end - begin) / (after - before))) for before, after, begin, end in pairs)]
        exact = self._times.durations()
        for row in range(1, len(self._numbers)):
            # Commits are dated by the store, which counts whole seconds; the members have measured the time.
            said, between = exact[row], found[row]
            if said is not None and between is not None and abs(said - between) <= _STORE_SECONDS:
                found[row] = _short(said)
        return found[: len(self._numbers)]

    def _metrics(self) -> Iterable[MetricView]:
        values = self._ranks * len(self._numbers) * len(self._columns)
        bits = 32 if values * 4 <= CELLS_MAX else 8
        bucket = 1 if bits == 32 else math.ceil(values / CELLS_MAX)
        for name, column in sorted(self._columns.items()):
            finite = [value for value in (*column.low, *column.high) if value is not None]
            least, greatest = min(finite, default=0.0), max(finite, default=0.0)
            by_rank = _by_rank(column.values, self._replicas, self._ranks, bucket)
            yield MetricView(
                name=name,
                mean=tuple(column.mean),
                low=tuple(column.low),
                high=tuple(column.high),
                bits=bits,
                bucket=bucket,
                least=least,
                greatest=greatest,
                cells=_floats(by_rank) if bits == 32 else _bytes(by_rank, least, greatest),
            )


def _rate(counted: float, seconds: float | None) -> float | None:
    return _short(counted / seconds) if seconds else None


def _short(value: float) -> float:
    """Six significant digits, which is more than a page shows."""
    return float(f"{value:.6g}")


def _by_rank(values: array[float], replicas: int, ranks: int, bucket: int) -> array[float]:
    """Of the first `ranks` one by one; of each `bucket` rounds the last value."""
    transposed = array("f")
    for rank in range(ranks):
        line = values[rank::replicas]
        if bucket == 1:
            transposed.extend(line)
            continue
        for begin in range(0, len(line), bucket):
            some = [value for value in line[begin : begin + bucket] if value == value]  # noqa: PLR0124 - not NaN
            transposed.append(some[-1] if some else math.nan)
    return transposed


def _floats(values: array[float]) -> str:
    little = values if sys.byteorder == "little" else array("f", values)
    if little is not values:
        little.byteswap()
    return base64.b64encode(little.tobytes()).decode("ascii")


def _bytes(values: array[float], least: float, greatest: float) -> str:
    scale = _STEPS / (greatest - least) if greatest > least else 0.0
    cells = bytes(
        _NONE if math.isnan(value) else min(_STEPS, max(0, round((value - least) * scale))) for value in values
    )
    return base64.b64encode(cells).decode("ascii")
