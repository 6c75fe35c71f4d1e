"""Rows as lines of text: columns keep their places from one status to the next; only the metrics are shortened."""

from __future__ import annotations

from collections.abc import Sequence

from muster.client.runs.status_text import Row

HEADINGS = Row("rank", "attempt", "status", "round", "metrics", "note", alert=False)
_GAP = "  "
_STATUS_WIDTH = 12  # the longest usual status: a table that jumps is hard to read
_METRICS_WIDTH = 12  # a narrower column says nothing; it is left out to make room for the notes


def lay_out(rows: Sequence[Row], width: int) -> list[str]:
    """One line for each of `rows`, at most `width` characters long unless a note is longer."""
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
