"""The event log of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from muster.client.aws.reported import Execution, ExecutionStatus, Job
from muster.client.runs.event_log import EventKind, Traces, event_log
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.waiting import Waiting

START = datetime(2026, 11, 21, 9, tzinfo=UTC)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def job(rank: int, attempt: int, status: str, ended: int | None = None) -> Job:
    name = JobName("muster", "digits", rank, attempt)
    times = {
        "launched_at": timestamps.text(at(attempt * 10)),
        "ended_at": None if ended is None else timestamps.text(at(ended)),
    }
    return Job(rank, Attempt(attempt=attempt, job=str(name), status=status, secondary=status, **times))


def test_waits_interruptions_reruns_and_the_run_that_follows_are_in_order() -> None:
    execution = Execution("digits", ExecutionStatus.FAILED, START, at(60), 2, "Muster.Failed", "")
    lost = "muster-digits-r1-a1"
    history = [
        ("Training", 12),
        ("Interrupted", 13),
        ("Restarting", 14),
        ("Training", 15),
    ]
    entries = event_log(
        Traces(
            execution=execution,
            jobs=[job(1, 1, "Failed", ended=16), job(1, 2, "Completed", ended=50), job(0, 2, "InProgress")],
            failures={lost: FailureClass.USER_CODE},
            histories={lost: [Transition(at=at(when).isoformat(), secondary=step) for step, when in history]},
            waits=[(Waiting(0, 2, FailureClass.QUOTA), at(5))],
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


@pytest.mark.parametrize(
    ("document", "restarts"),
    [
        ("{}", False),
        ('{"spot": true}', True),
        ('{"overrides": {"0-3": {"spot": true}}}', True),
        ('{"overrides": {"0-3": {"spot": false}}, "spot": false}', False),
        ('{"retry_strategy": {"maximum_retry_attempts": 3}}', True),
        ('{"overrides": ["nonsense"]}', False),
        ("nonsense", False),
    ],
)
def test_jobs_are_asked_for_interruptions_where_there_can_be_some(document: str, restarts: bool) -> None:
    answer = {"name": "a", "status": "RUNNING", "startDate": START, "input": document}
    assert Execution.from_description(answer).restarts is restarts
