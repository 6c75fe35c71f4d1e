"""What each replica did in each round, small enough for a page: shares of a round's duration as bytes. Pure.

A contribution says how long its replica has waited in the round before, and what it has done since then. So the table
moves the waiting to the round to which it belongs. Of the last round, a replica has waited for what is left of it.
"""

from __future__ import annotations

import base64
import math
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise

from muster.contract.run.commit import Commit
from muster.contract.run.time_use import Activity
from muster.report.page_model import TimesView

KINDS = len(Activity)
# Bytes for all replicas, rounds and activities. Base64 adds a third.
SHARES_MAX = 300_000
_FULL = 255
_TRAINING, _WAITING, _EXCHANGING, _SAVING, _LOADING = range(KINDS)
_AWAY = -1.0


class TimeTable:
    """Collects what the contributions say, in the order of the rounds."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._ranks = 0  # of which something is known
        self._seconds: list[float] = []
        self._shares: list[bytearray] = []
        self._sums: list[list[float]] = []  # of the members, by activity
        self._members: list[int] = []
        self._by_rank = array("d", bytes(8 * KINDS * replicas))
        # How long each replica has waited in the last round that was added, as far as that can be inferred.
        self._waited = array("d", [_AWAY]) * replicas

    def add(self, commit: Commit, seconds: float, rounds: int) -> None:
        """Add a round.

        Args:
            seconds: since the one before in the table, or since the run's start; 0: not known.
            rounds: how many rounds passed since then.
        """
        length = max(0.0, seconds)
        row, sums = bytearray(KINDS * self._replicas), [0.0] * KINDS
        self._seconds.append(length)
        self._shares.append(row)
        self._sums.append(sums)
        before, self._waited = self._waited, array("d", [_AWAY]) * self._replicas
        known = 0
        for member in commit.members:
            if member.rank >= self._replicas or not member.time:
                continue
            known += 1
            self._ranks = max(self._ranks, member.rank + 1)
            parts = [value / 1000 * rounds for value in (*member.time, 0, 0, 0, 0)[:KINDS]]
            if rounds == 1:
                waited, parts[_WAITING] = parts[_WAITING], 0.0
                if len(self._seconds) > 1 and before[member.rank] >= 0:
                    self._correct(member.rank, waited - before[member.rank])
                    if commit.waited_for != member.rank:
                        parts[_WAITING] = max(0.0, length - sum(parts))
                else:
                    self._spill(member.rank, parts)
            self._waited[member.rank] = parts[_WAITING]
            at = member.rank * KINDS
            for kind, value in enumerate(parts):
                if value:
                    sums[kind] += value
                    self._by_rank[at + kind] += value
                    row[at + kind] = _share(value, length)
        self._members.append(known)

    def _correct(self, rank: int, by: float) -> None:
        """The replica says how much longer it has waited in the round before than could be inferred."""
        at = rank * KINDS + _WAITING
        self._sums[-2][_WAITING] += by
        self._by_rank[at] += by
        row, length = self._shares[-2], self._seconds[-2]
        row[at] = _share(row[at] / _FULL * length + by, length)

    def _spill(self, rank: int, parts: list[float]) -> None:
        """What a replica that comes, or comes back, has done before this round: in the rounds without it.

        The means of these rounds are those of their members.
        """
        left, at = max(0.0, sum(parts) - self._seconds[-1]), rank * KINDS
        for row in range(len(self._seconds) - 2, -1, -1):
            shares, length = self._shares[row], self._seconds[row]
            if not left or any(shares[at : at + KINDS]):
                return
            room = length
            for kind in (_LOADING, _EXCHANGING, _SAVING, _TRAINING):
                moved = min(parts[kind], left, room)
                shares[at + kind] = _share(moved, length)
                self._by_rank[at + kind] += moved
                parts[kind], left, room = parts[kind] - moved, left - moved, room - moved

    def durations(self) -> list[float | None]:
        """The mean seconds that the members of each round say; None where none says them."""
        pairs = zip(self._sums, self._members, strict=True)
        return [sum(sums) / members if members else None for sums, members in pairs]

    def means(self) -> Iterator[tuple[float | None, ...]]:
        """For each activity, the mean seconds of a member in each round; None where no member says them."""
        for kind in range(KINDS):
            yield tuple(
                None if not members else _short(max(0.0, sums[kind]) / members)
                for sums, members in zip(self._sums, self._members, strict=True)
            )

    def view(self) -> TimesView | None:
        """The table as a page shows it; None where no contribution says its times."""
        if not any(self._members):
            return None
        rows = len(self._seconds)
        bucket = max(1, math.ceil(rows * self._ranks * KINDS / SHARES_MAX))
        return TimesView(
            means=tuple(self.means()),
            by_rank=tuple(
                tuple(round(value, 1) for value in self._by_rank[kind : self._ranks * KINDS : KINDS])
                for kind in range(KINDS)
            ),
            bucket=bucket,
            shares=base64.b64encode(self._bucketed(bucket)).decode("ascii"),
        )

    def _bucketed(self, bucket: int) -> bytes:
        """Rank by rank, for each `bucket` rounds, the shares of the activities."""
        starts = [*range(0, len(self._seconds), bucket), len(self._seconds)]
        columns = [self._merged(begin, end) for begin, end in pairwise(starts)]
        width = len(columns) * KINDS
        found = bytearray(self._ranks * width)
        for index, column in enumerate(columns):
            for kind in range(KINDS):
                found[index * KINDS + kind :: width] = column[kind : self._ranks * KINDS : KINDS]
        return bytes(found)

    def _merged(self, begin: int, end: int) -> Sequence[int]:
        """The shares of some rounds, weighted with their durations."""
        if end - begin == 1:
            return self._shares[begin]
        seconds = self._seconds[begin:end]
        total = sum(seconds)
        if not total:
            return bytearray(KINDS * self._replicas)
        rows = zip(*self._shares[begin:end], strict=True)
        return bytearray(
            round(sum(share * length for share, length in zip(row, seconds, strict=True)) / total) for row in rows
        )


def _share(seconds: float, length: float) -> int:
    return min(_FULL, max(0, round(seconds / length * _FULL))) if length else 0


def _short(value: float) -> float:
    return float(f"{value:.4g}")
