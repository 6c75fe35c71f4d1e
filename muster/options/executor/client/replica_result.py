"""A replica's result in the protocol's words. Pure."""

from __future__ import annotations

import re
from typing import TypedDict

from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import ReplicaState, ReplicaStatus, RunStatus
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result

_EXIT_CODE = re.compile(r"exit code:? (\d{1,3})\W*$", re.IGNORECASE)


class CollectedResult(TypedDict):
    """A replica's result in the protocol's words, and beyond them the attempts, the round and the metrics."""

    rank: int
    status: str
    exit_code: int | None
    error: str | None
    result: str | None
    training_job_name: str | None
    attempts: int
    round: int | None
    metrics: dict[str, float]


def state_of(replica: ReplicaStatus, run: RunState) -> ReplicaState:
    """Where a replica stands. One that was cancelled is that at once; other ends count when the run has ended."""
    return ReplicaState.CANCELLED if replica.is_cancelled else replica.state_in(run)


def result_of(rank: int, status: RunStatus, result: Result | None) -> CollectedResult:
    """The result of the replica `rank`; `result` is the run's, if it has one."""
    replica = next((item for item in status.replicas if item.rank == rank), ReplicaStatus(rank=rank))
    settled = None if result is None else next((item for item in result.replicas if item.rank == rank), None)
    state = state_of(replica, status.state)
    succeeded = state is ReplicaState.SUCCEEDED
    reason = _reason(settled)
    return {
        "rank": rank,
        "status": state.value,
        # SageMaker reports an exit code only in the text of a failure; otherwise it is unknown.
        "exit_code": 0 if succeeded else _exit_code(reason),
        "error": None if succeeded else _error(replica, status, settled, reason),
        "result": _left(settled) if succeeded else None,
        "training_job_name": replica.job,
        "attempts": replica.attempt,
        "round": replica.round,
        "metrics": replica.metrics,
    }


def _left(settled: ReplicaResult | None) -> str | None:
    """The run's model, or what the replica itself has left. Of a job that failed the archive may not exist."""
    return None if settled is None else settled.checkpoint_uri or settled.artifacts


def _reason(settled: ReplicaResult | None) -> str:
    return settled.attempts[-1].reason if settled is not None and settled.attempts else ""


def _exit_code(reason: str) -> int | None:
    found = _EXIT_CODE.search(reason)
    return int(found[1]) if found else None


def _error(replica: ReplicaStatus, status: RunStatus, settled: ReplicaResult | None, reason: str) -> str:
    if not state_of(replica, status.state).is_terminal:
        return f"timeout before terminal: the run {status.run} has not ended"
    cause = settled.attempts[-1].failure_class if settled is not None and settled.attempts else None
    words = [str(cause) if cause else "", reason]
    if settled is None and replica.is_cancelled:
        return f"{FailureClass.STOPPED_BY_USER}: {replica.reason}".rstrip(": ")
    if settled is None or settled.outcome is ReplicaOutcome.NOT_LAUNCHED or not any(words):
        words.append(status.reason)
    return ": ".join(word for word in words if word) or str(status.state)
