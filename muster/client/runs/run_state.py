"""Where a run stands, and for how long it has run: what a list shows of a run, without the documents of a status."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

from muster.client.aws.reported import ExecutionStatus
from muster.contract import timestamps
from muster.report.figures import clock


class RunState(StrEnum):
    """Where a run stands; its ends are those of `Verdict`. `stopping` is none: its jobs may still save their work."""

    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_terminal(self) -> bool:
        """Whether the run can never change again."""
        return self not in {RunState.RUNNING, RunState.STOPPING}


_OF_EXECUTION = {
    ExecutionStatus.RUNNING: RunState.RUNNING,
    ExecutionStatus.SUCCEEDED: RunState.SUCCEEDED,
    ExecutionStatus.ABORTED: RunState.STOPPED,
}


def execution_state(status: ExecutionStatus) -> RunState:
    """The state of a run of which only the execution's status is known; `stopping` then shows as the end."""
    return _OF_EXECUTION.get(status, RunState.FAILED)


def elapsed(started_at: str, ended_at: str | None) -> str:
    """Minutes and seconds since the start, or until the end."""
    end = timestamps.parse(ended_at) if ended_at else datetime.now(UTC)
    return clock(max(0.0, (end - timestamps.parse(started_at)).total_seconds()))
