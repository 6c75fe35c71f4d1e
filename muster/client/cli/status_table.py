"""A status drawn with Rich."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.text import Text

from muster.client.cli.columns import HEADINGS, lay_out
from muster.client.cli.output import visible
from muster.client.runs.run_status import RunState, RunStatus
from muster.client.runs.status_text import Row, headline, select

_COLOURS = {RunState.SUCCEEDED: "green", RunState.FAILED: "red", RunState.STOPPED: "yellow"}
_FRAME_LINES = 6  # headline, headings, the line on the others, the reason, and the prompt


def status_table(status: RunStatus, console: Console) -> RenderableType:
    """The run's headline above a table of its replicas, no larger than the terminal."""
    limit = max(3, console.height - _FRAME_LINES) if console.is_terminal else len(status.replicas)
    rows, others = select([Row.of(replica, status.state) for replica in status.replicas], limit)
    heading, *lines = lay_out([HEADINGS, *rows], console.width)
    parts = [_line(headline(status), _COLOURS.get(status.state, "bold")), _line(heading, "dim")]
    parts += [_line(line, _style(row)) for line, row in zip(lines, rows, strict=True)]
    if others:
        parts.append(_line(others, "dim"))
    if status.reason:
        parts.append(Text(visible(status.reason)))
    return Group(*parts)


def _line(text: str, style: str) -> Text:
    return Text(visible(text), style=style, no_wrap=True, overflow="ellipsis")


def _style(row: Row) -> str:
    if row.alert:
        return "yellow"
    return "green" if row.status == "Completed" else ""
