"""Runs as HTML for notebooks. An error of Muster is shown instead of raised: displaying an object must not fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from muster.client.runs.run_list import RunSummary
from muster.client.runs.run_status import RunStatus
from muster.client.runs.status_text import ReplicaLine, headline, recipe_line, shown_replicas
from muster.contract.errors import MusterError
from muster.report.seat_words import seats_text


def run_html(name: str, status: Callable[[], RunStatus]) -> str:
    """A run's headline and a table of its replicas."""
    try:
        now = status()
    except MusterError as error:
        return _paragraphs(name, str(error))
    rows = [ReplicaLine.of(replica, now.state) for replica in shown_replicas(now)]
    cells = [(row.rank, row.attempt, row.status, row.round, row.metrics, row.note) for row in rows]
    recipe = "" if now.recipe is None else recipe_line(now.recipe)
    seats = "" if now.seats is None else seats_text(now.seats)
    parts = filter(None, (headline(now), seats, now.reason, recipe))
    return _paragraphs(*parts) + _table(("rank", "attempt", "status", "round", "metrics", "note"), cells)


def runs_html(name: str, runs: Callable[[], Sequence[RunSummary]]) -> str:
    """A stack's newest runs as a table."""
    try:
        found = runs()
    except MusterError as error:
        return _paragraphs(name, str(error))
    cells = [(run.run, run.state, run.started_at, run.ended_at or "") for run in found]
    return _paragraphs(name) + _table(("run", "state", "started", "ended"), cells)


def _paragraphs(*texts: str) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
