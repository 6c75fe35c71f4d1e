"""The runs of a stack, one line each."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

from pydantic import Field

from muster.client.aws.reported import ExecutionStatus, ExecutionSummary
from muster.client.runs.observer import own_result
from muster.client.runs.run_status import RunState, execution_state, state_of_verdict
from muster.contract import timestamps
from muster.contract.document import Document
from muster.contract.timestamps import Timestamp

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud

_PARALLEL = 16
# A run may be settled before its execution ends in one of these: a user stops the execution, or a function fails after
# the result was written. The result is what holds.
_MAY_DIFFER = {ExecutionStatus.ABORTED, ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT}


class RunSummary(Document):
    """A run as a list shows it: from its execution and, where the execution did not succeed, from its result."""

    run: str
    state: RunState
    started_at: Timestamp
    ended_at: Timestamp | None = Field(default=None, description="none while it runs")


def list_runs(cloud: Cloud, state: RunState | None, limit: int) -> list[RunSummary]:
    """At most `limit` runs in `state` (all without one), the newest first."""
    return list(islice(_summaries(cloud, state, limit), limit))


def newest_names(cloud: Cloud, limit: int) -> list[str]:
    """The names of the newest runs: one call for each 100."""
    return [item.name for item in islice(cloud.executions.list(None), limit)]


def _summaries(cloud: Cloud, state: RunState | None, limit: int) -> Iterator[RunSummary]:
    running = state is RunState.RUNNING
    executions = cloud.executions.list(ExecutionStatus.RUNNING if running else None)
    candidates = (
        item for item in executions if item.status in _MAY_DIFFER or state in {None, execution_state(item.status)}
    )
    with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
        while batch := list(islice(candidates, limit)):
            for summary in pool.map(lambda item: _summary(cloud, item), batch):
                if state in {None, summary.state}:
                    yield summary


def _summary(cloud: Cloud, item: ExecutionSummary) -> RunSummary:
    return RunSummary(
        run=item.name,
        state=_state(cloud, item),
        started_at=timestamps.text(item.started_at),
        ended_at=timestamps.text(item.ended_at) if item.ended_at else None,
    )


def _state(cloud: Cloud, item: ExecutionSummary) -> RunState:
    if item.status not in _MAY_DIFFER:
        return execution_state(item.status)
    result = own_result(cloud, item)
    return execution_state(item.status) if result is None else state_of_verdict(result.verdict)
