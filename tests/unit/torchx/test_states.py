"""Where a replica stands, as the executor says it and as TorchX does."""

from __future__ import annotations

import pytest

from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import ReplicaStatus
from muster.contract.aws.failure_classes import FailureClass
from muster.torchx.states import replica_state


@pytest.mark.parametrize("secondary", ["Starting", "Pending", "PreparingTraining", "Downloading"])
def test_a_job_that_is_being_prepared_is_pending(secondary: str) -> None:
    replica = ReplicaStatus(rank=0, attempt=1, status="InProgress", secondary=secondary)
    assert replica_state(replica, RunState.RUNNING).name == "PENDING"


@pytest.mark.parametrize(
    ("run", "status", "cause", "told"),
    [
        (RunState.RUNNING, None, None, "pending"),
        (RunState.RUNNING, "InProgress", None, "running"),
        (RunState.RUNNING, "Completed", None, "succeeded"),
        (RunState.RUNNING, "Failed", FailureClass.INFRASTRUCTURE, "pending"),
        (RunState.STOPPING, "Stopping", None, "running"),
        (RunState.FAILED, "Completed", None, "succeeded"),
        (RunState.FAILED, "Failed", FailureClass.USER_CODE, "failed"),
        (RunState.FAILED, "Stopped", FailureClass.STOPPED_BY_MUSTER, "cancelled"),
        (RunState.STOPPED, "Stopped", FailureClass.STOPPED_BY_USER, "cancelled"),
        (RunState.STOPPED, None, None, "cancelled"),
        # SageMaker stops a job at its time limit, and refuses one beyond a quota: nobody has cancelled them.
        (RunState.FAILED, "Stopped", FailureClass.TIMEOUT, "failed"),
        (RunState.FAILED, None, FailureClass.QUOTA, "failed"),
    ],
)
def test_a_replicas_end_is_told_alike_by_both(
    run: RunState, status: str | None, cause: FailureClass | None, told: str
) -> None:
    replica = ReplicaStatus(
        rank=0, attempt=1, status=status, secondary="Training", ends=() if cause is None else (cause,)
    )
    assert (replica.state_in(run), replica_state(replica, run).name.lower()) == (told, told)
