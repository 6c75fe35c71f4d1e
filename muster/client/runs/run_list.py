"""The runs of a stack, one line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from muster.client.aws.cloud import Cloud
from muster.client.aws.reported import ExecutionStatus, ExecutionSummary
from muster.client.cli.view import elapsed
from muster.client.runs.run_status import RunState, execution_state
from muster.client.runs.timestamps import utc_text
from muster.contract.document import Document

LIST_MAX = 50


class RunSummary(Document):
    """A run as a list shows it: by its execution alone."""

    run: str
    state: RunState
    started_at: str
    ended_at: str | None = None


def list_runs(cloud: Cloud, state: RunState | None, limit: int) -> list[RunSummary]:
    """At most `limit` runs in `state` (all without one), the newest first."""
    return list(islice(map(_summary, _executions(cloud, state)), limit))


def _executions(cloud: Cloud, state: RunState | None) -> Iterator[ExecutionSummary]:
    wanted = [status for status in ExecutionStatus if state in {None, execution_state(status)}]
    # ListExecutions takes one status or none: of several, what else it tells is passed over.
    for item in cloud.executions(wanted[0] if len(wanted) == 1 else None):
        if item.status in wanted:
            yield item


def _summary(item: ExecutionSummary) -> RunSummary:
    return RunSummary(
        run=item.name,
        state=execution_state(item.status),
        started_at=utc_text(item.started_at),
        ended_at=utc_text(item.ended_at) if item.ended_at else None,
    )


def summary_lines(runs: Sequence[RunSummary]) -> Iterator[str]:
    """A table for people: each run, when it was started (UTC), how long it took or has gone on."""
    if not runs:
        yield "There is no such run. Start one with `muster launch SPEC`."
        return
    width = max(len(run.run) for run in runs)
    yield f"{'run':<{width}}  {'state':<9}  {'started':<20}  {'time':>8}"
    for run in runs:
        time = elapsed(run.started_at, run.ended_at)
        yield f"{run.run:<{width}}  {run.state:<9}  {run.started_at[:19]}Z  {time:>8}"
