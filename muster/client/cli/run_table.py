"""The table of runs that `muster list` prints. Pure, but for the time that running runs have taken so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from muster.client.runs.run_state import elapsed
from muster.contract.text import shortened
from muster.report.figures import dollars

if TYPE_CHECKING:
    from muster.client.runs.run_list import RunSummary

_REASON_MIN = 24  # characters: a narrower column says nothing, so the line becomes longer than the terminal
_NONE = "–"


class _Row(NamedTuple):
    run: str
    state: str
    started: str
    time: str
    replicas: str
    rounds: str
    reruns: str
    cost: str
    recipe: str
    reason: str


_HEADINGS = _Row("run", "state", "started (UTC)", "time", "replicas", "rounds", "reruns", "cost", "recipe", "reason")
_NUMBERS = {"time", "replicas", "rounds", "reruns", "cost"}


def list_lines(runs: Sequence[RunSummary], *, more: bool, width: int | None) -> Iterator[str]:
    """A line for each run, at most `width` characters long where that leaves room for the reason; None: any length."""
    if not runs:
        yield "No runs found. Start one with `muster launch SPEC`."
        return
    rows = [_row(run) for run in runs]
    # Few stacks have runs with recipes: the others have room for reasons.
    columns = [name for name in _Row._fields[:-1] if name != "recipe" or any(run.recipe for run in runs)]
    widths = {name: max(len(getattr(row, name)) for row in (_HEADINGS, *rows)) for name in columns}
    left = None if width is None else max(_REASON_MIN, width - sum(widths.values()) - 2 * len(widths))
    for row in (_HEADINGS, *rows):
        cells = [
            getattr(row, name).rjust(size) if name in _NUMBERS else getattr(row, name).ljust(size)
            for name, size in widths.items()
        ]
        reason = row.reason if left is None else shortened(row.reason, left)
        yield "  ".join([*cells, reason]).rstrip()
    if more:
        yield f"There are more: these are the newest {len(runs):,}. Show more with --limit, or fewer with --since."


def _row(run: RunSummary) -> _Row:
    return _Row(
        run=run.run,
        state=run.state,
        started=f"{run.started_at[:10]} {run.started_at[11:16]}",
        time=elapsed(run.started_at, run.ended_at),
        replicas=_number(run.replicas),
        rounds=_number(run.rounds),
        reruns=_number(run.reruns),
        cost=_NONE if run.usd is None else dollars(run.usd),
        recipe=run.recipe or _NONE,
        reason=" ".join(" ".join([*_classes(run), run.reason]).split()),
    )


def _classes(run: RunSummary) -> Iterator[str]:
    """The failure classes of a run, in brackets in front of its reason: `[infrastructure ×3, spot]`."""
    if run.failures:
        counted = (
            f"{one.failure_class} ×{one.attempts}" if one.attempts > 1 else one.failure_class for one in run.failures
        )
        yield f"[{', '.join(counted)}]"


def _number(value: int | None) -> str:
    return _NONE if value is None else f"{value:,}"
