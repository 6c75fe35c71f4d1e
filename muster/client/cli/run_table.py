"""The table of runs that `muster list` prints. Pure, but for the time that running runs have taken so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from muster.client.runs.run_state import elapsed
from muster.contract.text import columns, shortened
from muster.report.figures import dollars

if TYPE_CHECKING:
    from muster.client.runs.run_list import RunSummary

_REASON_MIN = 24  # characters: a narrower column says nothing, so the line becomes longer than the terminal
_NONE = "–"


_HEADINGS = ("run", "state", "started (UTC)", "time", "replicas", "rounds", "reruns", "cost", "recipe", "reason")
_NUMBERS = range(3, 8)
_RECIPE = 8


def list_lines(runs: Sequence[RunSummary], *, more: bool, width: int | None) -> Iterator[str]:
    """A line for each run, at most `width` characters long where that leaves room for the reason; None: any length."""
    if not runs:
        yield "No runs found. Start one with `muster launch SPEC`."
        return
    rows = [_HEADINGS, *map(_row, runs)]
    if not any(run.recipe for run in runs):  # few stacks have runs with recipes: the others have room for reasons
        rows = [(*row[:_RECIPE], *row[_RECIPE + 1 :]) for row in rows]
    others = sum(max(map(len, column)) + 2 for column in list(zip(*rows, strict=True))[:-1])
    if width is not None:
        rows = [(*row[:-1], shortened(row[-1], max(_REASON_MIN, width - others))) for row in rows]
    yield from columns(rows, right=_NUMBERS)
    if more:
        yield f"There are more: these are the newest {len(runs):,}. Show more with --limit, or fewer with --since."


def _row(run: RunSummary) -> tuple[str, ...]:
    return (
        run.run,
        run.state,
        f"{run.started_at[:10]} {run.started_at[11:16]}",
        elapsed(run.started_at, run.ended_at),
        _replicas(run),
        _number(run.rounds),
        _number(run.reruns),
        _NONE if run.usd is None else dollars(run.usd),
        run.recipe or _NONE,
        " ".join(" ".join([*_classes(run), run.reason]).split()),
    )


def _classes(run: RunSummary) -> Iterator[str]:
    """The failure classes of a run, in brackets in front of its reason: `[infrastructure ×3, spot]`."""
    if run.failures:
        counted = (
            f"{one.failure_class} ×{one.attempts}" if one.attempts > 1 else one.failure_class for one in run.failures
        )
        yield f"[{', '.join(counted)}]"


def _replicas(run: RunSummary) -> str:
    """`6 (26 parked)`: those that were parked at the end are no part of what came of the run."""
    if run.replicas is None or not run.parked:
        return _number(run.replicas)
    return f"{_number(run.replicas - run.parked)} ({run.parked:,} parked)"


def _number(value: int | None) -> str:
    return _NONE if value is None else f"{value:,}"
