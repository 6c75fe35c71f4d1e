"""The rounds of a run in columns, small enough for a page: metrics merged for each round, and metrics of each rank.

Replicas write the commits, so their contents are not trusted: ranks that the run does not have, values that are not
numbers and metrics above the limit of a contribution are left out.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.contract.run.commit import Commit
from muster.contract.timestamps import seconds_between
from muster.report.page_model import MetricView, RoundsView

# A commit carries at most 32 metrics of each member.
METRICS_MAX = 32
# A page reads at most so many commits, spread evenly over the run; a screen cannot show more.
ROUNDS_MAX = 500
# Bytes for the values of all ranks and metrics. Base64 adds a third: a page stays below 3 MB.
CELLS_MAX = 1_000_000
# Bytes in memory for these values while the commits are read, at 4 bytes each: a commit that names one rank takes as
# much as one that names all.
_VALUES_MAX = 256_000_000
UTILISATION = "utilisation"
_NONE = 255
_STEPS = 254


@dataclass
class _Column:
    """One metric in the rounds seen so far."""

    values: array[float]
    mean: list[float | None] = field(default_factory=list)
    low: list[float | None] = field(default_factory=list)
    high: list[float | None] = field(default_factory=list)


def chosen(keys: Sequence[str], most: int = ROUNDS_MAX) -> list[str]:
    """At most `most` of the sorted `keys`, evenly spread, the first and the last one among them."""
    if len(keys) <= most:
        return list(keys)
    last = len(keys) - 1
    return [keys[index * last // (most - 1)] for index in range(most)]


class RoundTable:
    """Collects the columns from commits in the order of their rounds. It does not keep the commits."""

    def __init__(self, replicas: int, started_at: str) -> None:
        self._replicas = replicas
        self._started_at = started_at
        self._numbers: list[int] = []
        self._at: list[float] = []
        self._members: list[int] = []
        self._excluded: list[int] = []
        self._absent: list[int] = []
        self._counted: list[float] = []
        self._newest: Commit | None = None
        self._columns: dict[str, _Column] = {}
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
        names = sorted({name for member in commit.members for name in member.metrics} - {"round"})
        for name in names:
            if name not in self._columns and (len(self._columns) < self._columns_max or name == UTILISATION):
                empty = array("f", [math.nan]) * (self._replicas * index)
                self._columns[name] = _Column(empty, [None] * index, [None] * index, [None] * index)
        for name, column in self._columns.items():
            found = [
                (member.rank, member.metrics[name], member.weight)
                for member in commit.members
                if member.rank < self._replicas and math.isfinite(member.metrics.get(name, math.nan))
            ]
            self._append(column, found)

    def _append(self, column: _Column, found: Sequence[tuple[int, float, float]]) -> None:
        row = array("f", [math.nan]) * self._replicas
        for rank, value, _ in found:
            row[rank] = value if abs(value) < 3e38 else math.nan
        column.values.extend(row)
        weight = sum(weight for _, _, weight in found)
        column.mean.append(_short(sum(value * share for _, value, share in found) / weight) if weight else None)
        column.low.append(_short(min(value for _, value, _ in found)) if found else None)
        column.high.append(_short(max(value for _, value, _ in found)) if found else None)

    def view(self, unread: int = 0) -> RoundsView:
        """The columns as a page shows them; `unread` commits could not be read."""
        seconds = self._seconds()
        utilisation = self._columns.get(UTILISATION)
        shares = utilisation.mean if utilisation else [None] * len(seconds)
        newest = self._newest
        speed: dict[str, Any] = (
            {}
            if newest is None
            else {
                "unit": newest.unit,
                "samples": newest.samples,
                "expected": newest.expected_rounds,
                "last_at": newest.committed_at,
                "pace": newest.pace and newest.pace.of_replicas(self._replicas),
            }
        )
        return RoundsView(
            total=self.latest,
            numbers=tuple(self._numbers),
            at=tuple(round(value, 3) for value in self._at),
            seconds=tuple(seconds),
            blocked=tuple(map(_blocked, seconds, shares)),
            members=tuple(self._members),
            excluded=tuple(self._excluded),
            absent=tuple(self._absent),
            rates=tuple(map(_rate, self._counted, seconds)),
            unread=unread,
            metrics=tuple(self._metrics()),
            **speed,
        )

    def _seconds(self) -> list[float | None]:
        """The duration of each round. The first one includes the start of the jobs, so it has none."""
        pairs = zip(self._numbers, self._numbers[1:], self._at, self._at[1:], strict=False)
        return [None, *(_short(max(0.0, (end - begin) / (after - before))) for before, after, begin, end in pairs)][
            : len(self._numbers)
        ]

    def _metrics(self) -> Iterable[MetricView]:
        values = self._replicas * len(self._numbers) * len(self._columns)
        bits = 32 if values * 4 <= CELLS_MAX else 8
        bucket = 1 if bits == 32 else math.ceil(values / CELLS_MAX)
        for name, column in sorted(self._columns.items()):
            finite = [value for value in (*column.low, *column.high) if value is not None]
            least, greatest = min(finite, default=0.0), max(finite, default=0.0)
            by_rank = _by_rank(column.values, self._replicas, bucket)
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


def _blocked(seconds: float | None, utilisation: float | None) -> float | None:
    return None if seconds is None or utilisation is None else _short(seconds * min(1.0, max(0.0, 1 - utilisation)))


def _rate(counted: float, seconds: float | None) -> float | None:
    return _short(counted / seconds) if seconds else None


def _short(value: float) -> float:
    """Six significant digits, which is more than a page shows."""
    return float(f"{value:.6g}")


def _by_rank(values: array[float], replicas: int, bucket: int) -> array[float]:
    """Rank by rank; of each `bucket` rounds the last value."""
    transposed = array("f")
    for rank in range(replicas):
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
