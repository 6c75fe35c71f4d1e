"""The event log of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.client.aws.reported import Execution, ExecutionStatus
from muster.client.runs.event_log import EventKind, Traces, event_log
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.hyperpod.cluster_job import ClusterJob
from muster.contract.names import JobName
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.record import Decision, Next

START = datetime(2026, 11, 21, 9, tzinfo=UTC)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def job(rank: int, attempt: int, status: str, ended: int | None = None, **fields: Any) -> Attempt:
    return Attempt(
        attempt=attempt,
        job=str(JobName("muster", "digits", rank, attempt)),
        launched_at=timestamps.text(at(attempt * 10)),
        ended_at=None if ended is None else timestamps.text(at(ended)),
        status=status,
        **{"secondary": status, **fields},
    )


def refused(rank: int, attempt: int, ended: int) -> Attempt:
    return job(rank, attempt, "Failed", ended, secondary=NOT_CREATED, failure_class=FailureClass.QUOTA)


def test_waits_interruptions_reruns_and_the_run_that_follows_are_in_order() -> None:
    execution = Execution("digits", ExecutionStatus.FAILED, START, at(60), 2, "Muster.Failed", "")
    steps = [("Training", 12), ("Interrupted", 13), ("Restarting", 14), ("Training", 15)]
    history = tuple(Transition(at=timestamps.text(at(when)), secondary=step) for step, when in steps)
    lost = job(1, 1, "Failed", 16, history=history, failure_class=FailureClass.USER_CODE)
    entries = event_log(
        Traces(
            execution=execution,
            attempts={0: [refused(0, 1, 5), job(0, 2, "InProgress")], 1: [lost, job(1, 2, "Completed", 50)]},
            rounds=[(1, at(30))],
            continued_by=("digits-x2", at(61)),
        )
    )
    assert [(item.kind, item.rank, item.attempt, item.failure_class) for item in entries] == [
        (EventKind.RUN_STARTED, None, None, None),
        (EventKind.REPLICA_WAITS, 0, 2, FailureClass.QUOTA),
        (EventKind.REPLICA_LAUNCHED, 1, 1, None),
        (EventKind.REPLICA_INTERRUPTED, 1, 1, None),
        (EventKind.REPLICA_INTERRUPTED, 1, 1, None),
        (EventKind.REPLICA_ENDED, 1, 1, FailureClass.USER_CODE),
        (EventKind.REPLICA_LAUNCHED, 0, 2, None),
        (EventKind.REPLICA_LAUNCHED, 1, 2, None),
        (EventKind.ROUND_COMMITTED, None, None, None),
        (EventKind.REPLICA_ENDED, 1, 2, None),
        (EventKind.RUN_ENDED, None, None, None),
        (EventKind.RUN_RERUN, None, None, None),
    ]
    assert [item.text for item in entries if item.rank == 1][:4] == [
        "replica 1 attempt 1 was launched",
        "replica 1 attempt 1 was interrupted: SageMaker took the instance back",
        "replica 1 attempt 1 restarts in the same job",
        "replica 1 attempt 1 failed: user-code",
    ]
    assert entries[-1].text == "the run is continued by digits-x2"


@pytest.mark.parametrize(("follows", "count"), [(Next.RERUN, 1), (Next.FAIL, 0), (None, 0)])
def test_a_replica_waits_after_a_refusal_only_where_it_is_rerun(follows: Next | None, count: int) -> None:
    execution = Execution("digits", ExecutionStatus.RUNNING, START, None, 1, "", "")
    decision = None if follows is None else Decision(next=follows, attempt=2)
    entries = event_log(Traces(execution=execution, attempts={0: [refused(0, 1, 5)]}, decisions={0: decision}))
    assert [item.kind for item in entries].count(EventKind.REPLICA_WAITS) == count


def test_an_attempt_that_sagemaker_has_not_reported_yet_is_not_launched() -> None:
    execution = Execution("digits", ExecutionStatus.RUNNING, START, None, 1, "", "")
    entries = event_log(Traces(execution=execution, attempts={0: [job(0, 1, "")]}))
    assert [item.kind for item in entries] == [EventKind.RUN_STARTED]


def test_quota_restarts_and_scaling_of_a_job_on_a_cluster_are_events() -> None:
    steps = [
        Transition(at=timestamps.text(at(11)), secondary="WaitingForQuota", message="the quota of team-a is in use"),
        Transition(at=timestamps.text(at(12)), secondary="Training", instances=1),
        Transition(at=timestamps.text(at(13)), secondary="Restarting", message="NodeFault"),
        Transition(at=timestamps.text(at(14)), secondary="Training", instances=1),
        Transition(at=timestamps.text(at(15)), secondary="Training", instances=2, message="scaled from 1 to 2"),
    ]
    cluster = ClusterJob(cluster="ml-cluster", namespace="team-a", queue="team-a-queue", instances=2, restarts=1)
    execution = Execution("digits", ExecutionStatus.RUNNING, START, None, 1, "", "")
    attempts = {0: [job(0, 1, "InProgress", history=tuple(steps), cluster=cluster)]}
    assert [(item.kind, item.text) for item in event_log(Traces(execution=execution, attempts=attempts))][1:] == [
        (EventKind.REPLICA_LAUNCHED, "replica 0 attempt 1 was launched on ml-cluster"),
        (
            EventKind.REPLICA_WAITS,
            "replica 0 attempt 1 waits for quota in queue team-a-queue: the quota of team-a is in use",
        ),
        (EventKind.REPLICA_INTERRUPTED, "replica 0 attempt 1 is restarted by the operator: NodeFault"),
        (EventKind.REPLICA_SCALED, "replica 0 attempt 1 trains on 2 instances"),
    ]
