"""A status drawn with Rich."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from muster.client.status import RunState, RunStatus
from muster.client.view import Row, headline, select

_COLOURS = {RunState.SUCCEEDED: "green", RunState.FAILED: "red", RunState.STOPPED: "yellow"}
_FRAME_LINES = 6  # headline, heading, rule, the word on the others, and room for the prompt


def status_table(status: RunStatus, console: Console) -> RenderableType:
    """The run's headline over a table of its replicas, no taller than the terminal."""
    limit = max(3, console.height - _FRAME_LINES) if console.is_terminal else len(status.replicas)
    rows, others = select([Row.of(replica, status.state) for replica in status.replicas], limit)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading, justify in (("rank", "right"), ("attempt", "right"), ("status", "left"), ("round", "right")):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("metrics", no_wrap=True, overflow="ellipsis")
    table.add_column("note", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(row.rank, row.attempt, row.status, row.round, row.metrics, row.note, style=_style(row))
    parts: list[RenderableType] = [Text(headline(status), style=_COLOURS.get(status.state, "bold")), table]
    if others:
        parts.append(Text(others, style="dim"))
    if status.reason:
        parts.append(Text(status.reason))
    return Group(*parts)


def _style(row: Row) -> str:
    if row.alert:
        return "yellow"
    return "green" if row.status == "Completed" else ""
