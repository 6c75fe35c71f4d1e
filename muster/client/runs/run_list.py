"""The runs of a stack, one line each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from pydantic import Field

from muster.client.aws.reported import ExecutionStatus, ExecutionSummary
from muster.client.runs.run_status import RunState, execution_state
from muster.contract import timestamps
from muster.contract.document import Document
from muster.contract.timestamps import Timestamp

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud

LIST_MAX = 50


class RunSummary(Document):
    """A run as a list shows it, from its execution alone."""

    run: str
    state: RunState
    started_at: Timestamp
    ended_at: Timestamp | None = Field(default=None, description="none while it runs")


def list_runs(cloud: Cloud, state: RunState | None, limit: int) -> list[RunSummary]:
    """At most `limit` runs in `state` (all without one), the newest first."""
    return list(islice(map(_summary, _executions(cloud, state)), limit))


def _executions(cloud: Cloud, state: RunState | None) -> Iterator[ExecutionSummary]:
    wanted = [status for status in ExecutionStatus if state in {None, execution_state(status)}]
    # ListExecutions filters by one status at most; of several, the others are filtered here.
    for item in cloud.executions.list(wanted[0] if len(wanted) == 1 else None):
        if item.status in wanted:
            yield item


def _summary(item: ExecutionSummary) -> RunSummary:
    return RunSummary(
        run=item.name,
        state=execution_state(item.status),
        started_at=timestamps.text(item.started_at),
        ended_at=timestamps.text(item.ended_at) if item.ended_at else None,
    )
