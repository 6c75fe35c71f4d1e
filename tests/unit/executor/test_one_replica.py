"""Cancelling, polling and collecting single replicas, with the control plane over an AWS in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from muster.client.errors import NoJobError, UnknownReplicaError
from muster.client.logs.log_lines import LogLine
from muster.client.runs import cancellation
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import ReplicaState, ReplicaStatus, RunStatus
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.document import canonical_json
from muster.contract.spec.spec_reader import parse_spec
from muster.control.planning import make_plan
from muster.executor import MusterExecutor, ReplicaHandle
from muster.executor.executor import can_do_without
from muster.executor.replica_logs import log_text
from tests.memory.harness import RUN, SPEC, ControlHarness
from tests.support.memory_client import client_of

GOES_ON = {"replicas": 3, "on_replica_failure": "continue", "min_replicas": 2}


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        yield harness


def started(harness: ControlHarness, *armed: int, **fields: Any) -> tuple[MusterExecutor, list[ReplicaHandle]]:
    """A run whose ranks `armed` have jobs that train, an executor that knows it, and its handles."""
    spec = {**SPEC, **fields}
    harness.executions.start(RUN, canonical_json(spec).decode())
    make_plan(harness.plane.store, harness.deployment, harness.plan_request(**fields))
    for rank in armed:
        harness.arm(rank)
        harness.cloud.training.train(harness.job(rank))
    harness.deliver()
    executor = MusterExecutor(region="us-east-1")
    executor._muster._cloud = client_of(harness.cloud)
    return executor, [ReplicaHandle(rank, "muster", {"run": RUN}) for rank in range(spec["replicas"])]


def stopped_jobs(harness: ControlHarness) -> list[str]:
    return harness.cloud.training.names("Stopping", "Stopped")


def test_a_replica_is_cancelled_alone_if_the_run_can_do_without_it(harness: ControlHarness) -> None:
    executor, handles = started(harness, 0, 1, 2, **GOES_ON)
    executor.cancel(handles[1])
    assert stopped_jobs(harness) == [harness.job(1)]
    assert executor.poll(handles[1]) == "running"
    harness.cloud.training.end_stopped(harness.job(1))
    harness.deliver()
    assert harness.record(1).current.failure_class is FailureClass.STOPPED_BY_USER
    # At once, although the run continues: another attempt does not follow.
    assert [executor.poll(handle) for handle in handles] == ["running", "cancelled", "running"]
    (result,) = executor.collect([handles[1]])
    assert (result["status"], result["exit_code"], result["training_job_name"]) == ("cancelled", None, harness.job(1))
    assert str(result["error"]).startswith("stopped-by-user")
    executor.cancel(handles[1])
    assert harness.cloud.workflow.status(RUN) == "RUNNING"
    # A second one is one too many: the run ends as a whole.
    executor.cancel(handles[2])
    assert harness.cloud.workflow.status(RUN) == "ABORTED"


def test_the_run_is_stopped_if_it_needs_the_replica(harness: ControlHarness) -> None:
    executor, handles = started(harness, 0, 1, replicas=2)
    executor.cancel(handles[1])
    assert harness.cloud.workflow.status(RUN) == "ABORTED"


def test_cancelling_a_replica_that_has_ended_changes_nothing(harness: ControlHarness) -> None:
    executor, handles = started(harness, 0, 1, replicas=2)
    harness.cloud.training.complete(harness.job(0))
    harness.deliver()
    executor.cancel(handles[0])
    assert harness.cloud.workflow.status(RUN) == "RUNNING"
    assert stopped_jobs(harness) == []
    assert executor.poll(handles[0]) == "succeeded"


def test_a_replica_that_has_no_job_is_waited_for_and_named(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, _ = started(harness, 0, 1, **GOES_ON)
    run = executor._muster.run(RUN)

    def launch(_: float) -> None:
        harness.arm(2)

    monkeypatch.setattr(cancellation.time, "sleep", launch)
    assert run.cancel_replica(2) == harness.job(2)
    assert stopped_jobs(harness) == [harness.job(2)]
    harness.cloud.training.complete(harness.job(0))
    harness.deliver()
    assert run.cancel_replica(0) is None
    with pytest.raises(UnknownReplicaError, match=r"The run one has no replica 3: it has the replicas 0 to 2"):
        run.cancel_replica(3)


def test_a_replica_that_waits_for_its_next_attempt_is_an_error(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor, handles = started(harness, 0, 1, **GOES_ON)
    monkeypatch.setattr(cancellation, "_LAUNCH_SECONDS", 0.0)
    monkeypatch.setattr(cancellation.time, "sleep", lambda _: None)
    with pytest.raises(
        NoJobError, match=r"Replica 2 of the run one had no running training job .* `muster cancel one`"
    ):
        executor.cancel(handles[2])
    assert stopped_jobs(harness) == []


def replica(rank: int, status: str = "InProgress", **fields: Any) -> ReplicaStatus:
    return ReplicaStatus(rank=rank, attempt=1, job=f"j{rank}", status=status, secondary="Training", **fields)


@pytest.mark.parametrize(
    ("others", "fields", "can"),
    [
        ([replica(1), replica(2)], {"min_replicas": 2}, True),
        ([replica(1), replica(2)], {}, False),
        ([replica(1), replica(2)], {"on_replica_failure": "terminate"}, False),
        ([replica(1, "Completed"), replica(2)], {"min_replicas": 2}, True),
        ([replica(1, "Stopping"), replica(2)], {"min_replicas": 2}, False),
        ([replica(1, "Failed", rerun_follows=False), replica(2)], {"min_replicas": 2}, False),
        ([replica(1, "Failed", rerun_follows=True), replica(2)], {"min_replicas": 2}, True),
        ([replica(1, "Completed", rerun_follows=False), replica(2)], {"min_replicas": 2}, True),
    ],
)
def test_a_run_can_do_without_a_replica_while_enough_others_can_succeed(
    others: list[ReplicaStatus], fields: dict[str, Any], can: bool
) -> None:
    spec = parse_spec({"replicas": 3, "trainer": "m:f", "on_replica_failure": "continue", **fields})
    status = RunStatus(run="a", state=RunState.RUNNING, started_at="", replicas=(replica(0), *others))
    assert can_do_without(spec, status, 0) is can


def test_a_stop_that_a_rerun_follows_is_no_end() -> None:
    rerun = replica(0, "Stopped", ends=(FailureClass.STOPPED_BY_USER,), rerun_follows=True)
    assert not rerun.is_cancelled
    assert rerun.state_in(RunState.RUNNING) is ReplicaState.PENDING
    failed = replica(0, "Failed", ends=(FailureClass.USER_CODE,), rerun_follows=False)
    assert not failed.is_cancelled


def line(attempt: int, message: str) -> LogLine:
    job = f"muster-a-r0-a{attempt}"
    return LogLine(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        rank=0,
        attempt=attempt,
        job=job,
        stream=f"{job}/algo-1-17",
        message=message,
    )


def test_each_jobs_lines_are_below_a_line_with_the_job_and_its_stream() -> None:
    assert log_text(0, "muster-a-r0-a2", [line(1, "loss=2"), line(1, "killed"), line(2, "loss=1")]).splitlines() == [
        "[rank 0] job=muster-a-r0-a1 stream=muster-a-r0-a1/algo-1-17",
        "loss=2",
        "killed",
        "[rank 0] job=muster-a-r0-a2 stream=muster-a-r0-a2/algo-1-17",
        "loss=1",
    ]
    assert log_text(0, "muster-a-r0-a1", []).startswith("[rank 0] job=muster-a-r0-a1: no CloudWatch log stream yet (")
