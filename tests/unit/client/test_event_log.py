"""What an execution says of its run, and the event log of a run."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.client.aws.reported import Execution, ExecutionStatus
from muster.client.runs.event_log import EventKind, Traces, event_log
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.names import JobName
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.cluster_job import ClusterJob
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
    shown = [(item.kind.name, item.rank, item.attempt) for item in entries]
    assert shown == [
        *(("RUN_STARTED", None, None), ("REPLICA_WAITS", 0, 2), ("REPLICA_LAUNCHED", 1, 1)),
        *(("REPLICA_INTERRUPTED", 1, 1), ("REPLICA_INTERRUPTED", 1, 1), ("REPLICA_ENDED", 1, 1)),
        *(("REPLICA_LAUNCHED", 0, 2), ("REPLICA_LAUNCHED", 1, 2), ("ROUND_COMMITTED", None, None)),
        *(("REPLICA_ENDED", 1, 2), ("RUN_ENDED", None, None), ("RUN_CONTINUED", None, None)),
    ]
    assert [item.failure_class for item in entries if item.failure_class] == [
        FailureClass.QUOTA,
        FailureClass.USER_CODE,
    ]
    assert [item.text.partition("attempt 1 ")[2] for item in entries if item.rank == 1][:4] == [
        "was launched",
        "was interrupted: SageMaker took the instance back",
        "restarts in the same job",
        "failed: user-code",
    ]
    assert entries[-1].text == "the run is continued by digits-x2"


def test_a_replica_waits_after_a_refusal_only_where_it_is_rerun_and_is_launched_once_reported() -> None:
    execution = Execution("digits", ExecutionStatus.RUNNING, START, None, 1, "", "")
    for follows, count in ((Next.RERUN, 1), (Next.FAIL, 0), (None, 0)):
        decision = None if follows is None else Decision(next=follows, attempt=2)
        entries = event_log(Traces(execution=execution, attempts={0: [refused(0, 1, 5)]}, decisions={0: decision}))
        assert [item.kind for item in entries].count(EventKind.REPLICA_WAITS) == count, follows
    entries = event_log(Traces(execution=execution, attempts={0: [job(0, 1, "")]}))
    assert [item.kind for item in entries] == [EventKind.RUN_STARTED]


def test_quota_restarts_and_scaling_of_a_job_on_a_cluster_are_events() -> None:
    steps = [
        ("WaitingForQuota", {"message": "the quota of team-a is in use"}),
        ("Training", {"instances": 1}),
        ("Restarting", {"message": "NodeFault"}),
        ("Training", {"instances": 1}),
        ("Training", {"instances": 2, "message": "scaled from 1 to 2"}),
    ]
    history = tuple(
        Transition(at=timestamps.text(at(11 + number)), secondary=name, **fields)
        for number, (name, fields) in enumerate(steps)
    )
    cluster = ClusterJob(cluster="ml-cluster", namespace="team-a", queue="team-a-queue", instances=2, restarts=1)
    execution = Execution("digits", ExecutionStatus.RUNNING, START, None, 1, "", "")
    attempts = {0: [job(0, 1, "InProgress", history=history, cluster=cluster)]}
    entries = event_log(Traces(execution=execution, attempts=attempts))[1:]
    assert [(item.kind.name, item.text.removeprefix("replica 0 attempt 1 ")) for item in entries] == [
        ("REPLICA_LAUNCHED", "was launched on ml-cluster"),
        ("REPLICA_WAITS", "waits for quota in queue team-a-queue: the quota of team-a is in use"),
        ("REPLICA_INTERRUPTED", "is restarted by the operator: NodeFault"),
        ("REPLICA_SCALED", "trains on 2 instances"),
    ]


def test_the_message_of_a_cause_is_found() -> None:
    for cause, message in (
        ('{"errorMessage": "The spec has 1 problem", "errorType": "SpecError"}', "The spec has 1 problem"),
        ("[1]", "[1]"),
        ('Muster itself has failed. {"errorMessage": "no bucket"}', "Muster itself has failed. no bucket"),
        ("environment: found {1}; write a mapping", "environment: found {1}; write a mapping"),
        ("replica 1 was lost\n\nLogs: https://…", "replica 1 was lost"),
    ):
        answer = {"name": "x", "status": "FAILED", "startDate": None, "input": '{"replicas": true}', "cause": cause}
        execution = Execution.from_description(answer)
        assert (execution.cause, execution.replicas) == (message, 0), cause


def test_the_clusters_of_the_ranks_are_in_the_input() -> None:
    other = {"1": {"backend": "training-job"}, "2-9": {"hyperpod": {"cluster": "b"}}, "x": 1, "y": {}}
    for spec, clusters in (
        ({"replicas": 2}, {}),
        ({"replicas": 2, "backend": "hyperpod", "hyperpod": {"cluster": "a"}}, {0: "a", 1: "a"}),
        ({"replicas": 4, "backend": "hyperpod", "overrides": other}, {0: "", 2: "b", 3: "b"}),
        ({"replicas": 2, "hyperpod": {"cluster": "a"}, "overrides": {"1": {"backend": "hyperpod"}}}, {1: "a"}),
        ({"replicas": 2, "hyperpod": [], "overrides": [], "backend": {}}, {}),
    ):
        answer: Any = {"name": "x", "status": "RUNNING", "startDate": None, "input": json.dumps(spec)}
        assert Execution.from_description(answer).clusters == clusters, spec
