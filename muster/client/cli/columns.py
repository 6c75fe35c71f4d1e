"""Rows as lines of text: columns keep their places from one look to the next, and only the metrics give way."""

from __future__ import annotations

from collections.abc import Sequence

from muster.client.cli.view import Row

HEADINGS = Row("rank", "attempt", "status", "round", "metrics", "note", alert=False)
_GAP = "  "
_STATUS_WIDTH = 12  # the longest usual one: a table that jumps is hard to read
_METRICS_WIDTH = 12  # with less than a name's beginning the column says nothing, and the notes need its room


def lay_out(rows: Sequence[Row], width: int) -> list[str]:
    """One line for each of `rows`, which should fit into `width` characters; only long notes go beyond."""
    rank, attempt, status, round_, note = (
        max(len(cell) for cell in cells)
        for cells in zip(*((row.rank, row.attempt, row.status, row.round, row.note) for row in rows), strict=True)
    )
    status = max(status, _STATUS_WIDTH)
    left = width - (rank + attempt + status + round_ + note + 5 * len(_GAP))
    metrics = max(_METRICS_WIDTH, min(left, max(len(row.metrics) for row in rows)))
    shows_metrics = left >= _METRICS_WIDTH
    return [
        _GAP.join(
            (
                row.rank.rjust(rank),
                row.attempt.rjust(attempt),
                row.status.ljust(status),
                row.round.rjust(round_),
                *((_shorten(row.metrics, metrics).ljust(metrics),) if shows_metrics else ()),
                row.note,
            )
        ).rstrip()
        for row in rows
    ]


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
