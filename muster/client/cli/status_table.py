"""A run's status as a table for the terminal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from muster.client.cli.output import visible
from muster.client.forecasts import utilisation_line
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import RunStatus
from muster.client.runs.status_text import (
    ReplicaLine,
    headline,
    model_line,
    read_back_lines,
    recipe_line,
    select,
    shown_replicas,
    updates_text,
)
from muster.contract.spec.sweep_values import short_names
from muster.contract.text import shortened
from muster.report.seat_words import seat_lines, seats_text
from muster.report.time_split import time_sentences

HEADINGS = ReplicaLine("rank", "attempt", "status", "round", "rate", "metrics", "note", alert=False, place="cluster")
_GAP = "  "
_STATUS_WIDTH = 12  # the longest usual status: a table that jumps is hard to read
_VALUE_WIDTH = 24  # a longer value of a sweep is cut
_PLACE_WIDTH = 20  # a longer name of a cluster is cut
_METRICS_WIDTH = 12  # a narrower column says nothing; it is left out to make room for the notes

_COLOURS = {RunState.SUCCEEDED: "green", RunState.FAILED: "red", RunState.STOPPED: "yellow"}
_FINDINGS_SHOWN = 5  # the last ones; `muster events` shows all
_FRAME_LINES = 10  # headline, headings, the others, the reason, where the time went, updates, and the prompt


class Line(NamedTuple):
    """A line of the table, safe for a terminal."""

    text: str
    style: str = ""
    """`bold`, `dim`, `green`, `red`, `yellow`, or none."""
    is_cut: bool = False
    """A line that is longer than the terminal is cut; another one is wrapped."""


def status_lines(status: RunStatus, width: int, height: int | None) -> list[Line]:
    """The run's headline above a table of its replicas, no larger than a terminal of this size; None: of any height."""
    findings = [finding.words for finding in status.findings[-_FINDINGS_SHOWN:]]
    replicas, seats = shown_replicas(status), _seat_lines(status)
    told = (status.recipe is not None) + (status.forecast is not None)
    frame = _FRAME_LINES + len(status.remarks) + len(findings) + len(seats) + told
    limit = len(replicas) if height is None else max(3, height - frame)
    rows, others = select([ReplicaLine.of(replica, status.state) for replica in replicas], limit)
    names = dict.fromkeys(name for replica in status.replicas for name in replica.values)
    headings = replace(HEADINGS, rate=f"{status.unit}/s", values=tuple(short_names(names).values()))
    if any(replica.where is not None for replica in replicas):
        headings = replace(headings, place="place")
    heading, *lines = lay_out([headings, *rows], width)
    parts = [_row(headline(status), _COLOURS.get(status.state, "bold")), _row(heading, "dim")]
    parts += [_row(line, _style(row)) for line, row in zip(lines, rows, strict=True)]
    if others:
        parts.append(_row(others, "dim"))
    parts += seats
    sentences = (
        status.reason,
        " ".join(time_sentences(status.time)),
        None if status.forecast is None else utilisation_line(status.forecast),
        updates_text(status),
        None if status.recipe is None else recipe_line(status.recipe),
        None if status.model is None else model_line(status.run, status.model),
    )
    parts += [Line(visible(words)) for words in sentences if words]
    parts += [Line(visible(remark), "yellow") for remark in (*findings, *status.remarks)]
    details = {replica.rank: replica.details for replica in status.replicas if replica.details is not None}
    parts += [Line(visible(line)) for line in read_back_lines(details, status.saving, status.warm_pools)]
    return parts


def _seat_lines(status: RunStatus) -> list[Line]:
    """Of an elastic run: how many replicas are there of those that are wanted, and the seats that have no job."""
    if status.seats is None or status.state.is_terminal:
        return []
    head = Line(visible(f"seats: {seats_text(status.seats)}"))
    return [head, *(_row(line, "dim") for line in seat_lines(status.seats))]


def _row(text: str, style: str) -> Line:
    return Line(visible(text), style, is_cut=True)


def _style(row: ReplicaLine) -> str:
    if row.alert:
        return "yellow"
    return "green" if row.status == "Completed" else ""


def lay_out(rows: Sequence[ReplicaLine], width: int) -> list[str]:
    """One line for each of `rows`, at most `width` characters long unless a note is longer."""
    rank, attempt, round_, rate = (
        _column([getattr(row, name) for row in rows], right=True) for name in ("rank", "attempt", "round", "rate")
    )
    status, note = _column([row.status for row in rows], least=_STATUS_WIDTH), _column([row.note for row in rows])
    left = width - _width([rank, attempt, status, round_, note])
    # Only a run that uses clusters has the column. Training jobs have none.
    has_places = any(row.place for row in rows[1:])
    places = [_column([row.place or "–" for row in rows], most=_PLACE_WIDTH)] if has_places else []
    left -= _width(places)
    # The values of a sweep come first, as many as there is room for: they say which replica is which.
    values = [_column(cells, most=_VALUE_WIDTH) for cells in zip(*(row.values for row in rows), strict=False)]
    while len(values) > 1 and _width(values) > left:
        values.pop()
    left -= _width(values)
    # Of a run that says no rate, and in a narrow terminal, the column is left out.
    has_rates = any(row.rate not in {HEADINGS.rate, "–"} for row in rows[1:])
    rates = [rate] if has_rates and _width([rate]) <= left else []
    left -= _width(rates)
    has_metrics = left >= _METRICS_WIDTH
    metrics = [_column([row.metrics for row in rows], least=_METRICS_WIDTH, most=left)] if has_metrics else []
    columns = [rank, *values, *places, attempt, status, round_, *rates, *metrics, note]
    return [_GAP.join(cells).rstrip() for cells in zip(*columns, strict=True)]


def _column(cells: Sequence[str], *, least: int = 0, most: int | None = None, right: bool = False) -> list[str]:
    """The cells in the width of the longest, within these limits."""
    size = max(least, *map(len, cells))
    size = size if most is None else min(size, most)
    return [cell.rjust(size) if right else shortened(cell, size).ljust(size) for cell in cells]


def _width(columns: Sequence[Sequence[str]]) -> int:
    """Of columns, with a gap behind each."""
    return sum(len(cells[0]) + len(_GAP) for cells in columns)
