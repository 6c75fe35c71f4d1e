"""Sweep: what a lost event left behind is found by comparing what there is with what should be."""

from __future__ import annotations

from datetime import timedelta

import pytest

from muster.contract.run.orphans import LOOK_BACK_SECONDS, YOUNG_SECONDS
from muster.control.runtime import clock
from muster.control.sweep import SweepRequest, Swept, sweep
from tests.memory import AwsError, Fault
from tests.memory.harness import RUN, ControlHarness, budget

NOTHING = Swept((), (), (), ())


def swept(harness: ControlHarness, seconds: float = 600, **fields: float) -> Swept:
    return sweep(harness.plane, harness.executions, SweepRequest.model_validate(fields), budget(seconds))


def cut_off(harness: ControlHarness, run: str = RUN, status: str = "FAILED") -> None:
    """End the execution, and lose the event."""
    harness.cloud.workflow.fail(run, "States.Runtime", status=status)
    harness.cloud.notifications.drain()


def test_a_run_that_trains_is_left_alone(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.clock.advance(86_400)
    assert swept(harness) == NOTHING
    assert harness.cloud.training.names("InProgress") == [harness.job()]


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT", "ABORTED"])
def test_a_run_whose_end_was_missed_is_cleared_up(harness: ControlHarness, status: str) -> None:
    harness.plan()
    harness.arm()
    cut_off(harness, status=status)
    assert swept(harness) == Swept((RUN,), (), (), ())
    assert harness.cloud.training.names("Stopped") == [harness.job()]
    result = harness.result()
    assert result is not None
    assert result.verdict.value == ("stopped" if status == "ABORTED" else "failed")
    assert swept(harness) == NOTHING


def test_a_run_that_succeeded_is_none_of_the_sweeps(harness: ControlHarness) -> None:
    harness.plan()
    harness.cloud.workflow.succeed(RUN)
    assert swept(harness) == NOTHING
    assert harness.result() is None


def test_an_execution_without_a_run_and_one_whose_name_was_taken_are_left(harness: ControlHarness) -> None:
    """The plan of the second belongs to an execution of another state machine."""
    harness.executions.start("never-planned", "{}")
    cut_off(harness, "never-planned")
    run = harness.plan()
    plan = run.plan.model_copy(update={"execution_arn": "arn:other"})
    harness.plane.store.s3.put_object(Bucket="bucket", Key=plan.layout.plan, Body=plan.to_json())
    cut_off(harness)
    assert swept(ControlHarness(cloud=harness.cloud)) == NOTHING
    assert run.documents.fence() is None


def test_what_ended_long_ago_is_not_looked_at(harness: ControlHarness) -> None:
    harness.plan()
    cut_off(harness)
    harness.cloud.clock.advance(LOOK_BACK_SECONDS + 1)
    assert swept(harness) == NOTHING


def test_a_damaged_plan_is_a_trouble_and_keeps_no_other_run(harness: ControlHarness) -> None:
    for name in ("broken", RUN):
        harness.plan(name)
        harness.arm(run=name)
        cut_off(harness, name)
    harness.plane.store.s3.put_object(Bucket="bucket", Key="control/broken/plan.json", Body=b"damaged")
    found = swept(ControlHarness(cloud=harness.cloud))
    assert found.settled == (RUN,)
    [trouble] = found.errors
    assert "control/broken/plan.json cannot be read" in trouble


def test_a_run_that_takes_long_to_stop_does_not_use_up_the_time_of_the_others(harness: ControlHarness) -> None:
    for name in ("slow", RUN):
        harness.plan(name)
        harness.arm(run=name)
    # The last second of the slow one is out of reach; the other one has ended.
    harness.cloud.training.complete(harness.job())
    harness.cloud.training.stop_seconds = 3_600
    for name in ("slow", RUN):
        cut_off(harness, name)
        harness.cloud.clock.advance(1)
    found = swept(harness, 200)
    assert found.settled == (RUN,)
    [trouble] = found.errors
    assert trouble.startswith("slow: 1 jobs of slow are still active")
    assert harness.cloud.clock.monotonic() < 110


# --- jobs -----------------------------------------------------------------------------------------


def orphan(harness: ControlHarness, run: str = "gone", **fields: object) -> str:
    """A job of a run that has ended, created after the last look at it."""
    harness.plan(run)
    harness.arm(run=run)
    request = dict(harness.cloud.calls.of("CreateTrainingJob")[-1])
    name = harness.job(attempt=2, run=run)
    tags = [{**tag, "Value": "2"} if tag["Key"] == "muster:attempt" else tag for tag in request["Tags"]]
    harness.cloud.training.complete(harness.job(run=run))
    harness.cloud.workflow.succeed(run)
    harness.cloud.client("sagemaker").create_training_job(
        **{**request, "TrainingJobName": name, "Tags": tags, **fields}
    )
    return name


def test_a_job_whose_run_has_ended_is_stopped_once_it_is_no_longer_young(harness: ControlHarness) -> None:
    name = orphan(harness)
    assert swept(harness) == NOTHING
    harness.cloud.clock.advance(YOUNG_SECONDS)
    assert swept(harness) == Swept((), (name,), (), ())
    assert harness.cloud.training.names("Stopping") == [name]


def test_a_sweep_by_hand_may_judge_younger_jobs(harness: ControlHarness) -> None:
    name = orphan(harness)
    assert swept(harness, young_seconds=0).stopped == (name,)


def test_a_foreign_job_under_our_names_is_reported_and_left(harness: ControlHarness) -> None:
    name = orphan(harness, Tags=[])
    assert swept(harness, young_seconds=0) == Swept((), (), (name,), ())
    assert harness.cloud.training.names("InProgress") == [name]


def test_one_job_that_cannot_be_stopped_keeps_no_other(harness: ControlHarness) -> None:
    names = [orphan(harness, run) for run in ("first", "second")]
    harness.cloud.calls.inject(
        Fault(
            "StopTrainingJob",
            AwsError("AccessDeniedException"),
            when=lambda call: call.parameters["TrainingJobName"] == names[0],
        )
    )
    found = swept(harness, young_seconds=0)
    assert found.stopped == (names[1],)
    assert [trouble.partition(":")[0] for trouble in found.errors] == [names[0]]
    assert swept(harness, young_seconds=0).stopped == (names[0],)


def test_executions_are_listed_after_the_jobs_so_that_a_run_that_begins_is_no_suspect(harness: ControlHarness) -> None:
    swept(harness)
    operations = [call.operation for call in harness.cloud.calls.log if call.operation.startswith("List")]
    assert operations[-2:] == ["ListTrainingJobs", "ListExecutions"]


def test_ended_executions_come_in_the_order_of_their_ends(harness: ControlHarness) -> None:
    for name in ("first", "second", "third"):
        harness.executions.start(name, "{}")
    for name in ("second", "first", "third"):
        harness.cloud.clock.advance(1)
        harness.cloud.workflow.fail(name, "States.Runtime", status="TIMED_OUT" if name == "first" else "FAILED")
    since = clock.utc_now() - timedelta(seconds=2)
    ended = harness.executions.ended(("FAILED", "TIMED_OUT"), since)
    assert [execution.name for execution in ended] == ["second", "first", "third"]
    assert [one.name for one in harness.executions.ended(("FAILED",), since + timedelta(seconds=1))] == ["third"]
