"""Sweep: what a lost event left behind is found by comparing what there is with what should be."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.orphans import LOOK_BACK_SECONDS, YOUNG_SECONDS
from muster.contract.run.result import Verdict
from muster.control.runtime import clock
from muster.control.sweep import SweepRequest, Swept, sweep
from tests.memory import AwsError, Call, Fault
from tests.memory.clock import SkewedClock
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
    assert harness.cloud.clock.monotonic() < 200


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
    assert operations[:2] == ["ListTrainingJobs", "ListExecutions"]


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


# --- what comes first, and what may fail ----------------------------------------------------------


class FunctionEndedError(BaseException):
    """The function has used up its memory or its time: no code of it runs any more."""


def reads(run: str) -> Callable[[Call], bool]:
    return lambda call: str(call.parameters.get("Key", "")).startswith(f"control/{run}/replicas/")


def test_orphans_are_stopped_before_any_run_is_settled(harness: ControlHarness) -> None:
    name = orphan(harness)
    harness.plan()
    harness.arm()
    cut_off(harness)
    harness.cloud.clock.advance(YOUNG_SECONDS)
    settled: list[bool] = []
    stopped = Fault(
        "StopTrainingJob",
        when=lambda call: call.parameters["TrainingJobName"] == name,
        action=lambda: settled.append(harness.result() is not None),
    )
    harness.cloud.calls.inject(stopped)
    found = swept(harness)
    assert (set(found.stopped), found.settled) == ({name, harness.job()}, (RUN,))
    assert settled == [False]


def test_a_job_of_a_run_that_was_missed_is_stopped_after_its_fence_is_raised(harness: ControlHarness) -> None:
    """Otherwise the event of its end would say that a user has stopped it."""
    run = harness.plan()
    harness.arm()
    cut_off(harness)
    harness.cloud.clock.advance(YOUNG_SECONDS)
    fenced: list[bool] = []
    harness.cloud.calls.inject(Fault("StopTrainingJob", action=lambda: fenced.append(run.is_stopping)))
    swept(harness)
    assert fenced == [True]
    harness.deliver()
    assert harness.record().current.failure_class is FailureClass.STOPPED_BY_MUSTER


@pytest.mark.parametrize("listings", range(5))
def test_a_run_that_is_cancelled_during_a_sweep_has_no_job_stopped_without_its_fence(
    harness: ControlHarness, listings: int
) -> None:
    run = harness.plan()
    harness.arm()
    harness.cloud.clock.advance(YOUNG_SECONDS)
    fenced: list[bool] = []
    harness.cloud.calls.inject(
        Fault("List*", skip=listings, action=lambda: cut_off(harness, status="ABORTED")),
        Fault("StopTrainingJob", count=None, action=lambda: fenced.append(run.is_stopping)),
    )
    swept(harness)
    assert False not in fenced
    swept(harness)
    assert harness.cloud.training.names("Stopping", "Stopped") == [harness.job()]
    assert False not in fenced


@pytest.mark.parametrize(
    ("operation", "key"),
    [("PutObject", "stopping.json"), ("GetObject", "finished.json")],
    ids=["the fence", "the mark of its end"],
)
def test_a_job_whose_run_cannot_be_fenced_is_left_to_the_next_call(
    harness: ControlHarness, operation: str, key: str
) -> None:
    run = harness.plan()
    harness.arm()
    cut_off(harness)
    harness.cloud.clock.advance(YOUNG_SECONDS)
    denied = AwsError("AccessDenied", status=403)
    harness.cloud.calls.inject(
        Fault(operation, denied, count=None, when=lambda call: call.parameters["Key"].endswith(key))
    )
    found = swept(harness)
    assert (found.stopped, found.left) == ((), (harness.job(),))
    assert harness.cloud.training.names("InProgress") == [harness.job()]
    harness.cloud.calls.faults.clear()
    assert swept(harness).stopped == (harness.job(),)
    harness.deliver()
    assert run.documents.fence() is not None
    assert harness.record().current.failure_class is FailureClass.STOPPED_BY_MUSTER


def test_a_fence_outlasts_minutes_in_which_s3_refuses_it(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    cut_off(harness)
    harness.cloud.clock.advance(YOUNG_SECONDS)
    began = harness.cloud.clock.monotonic()
    down = AwsError("ServiceUnavailable", status=503)
    harness.cloud.calls.inject(
        Fault("PutObject", down, count=None, when=lambda _: harness.cloud.clock.monotonic() - began < 120)
    )
    found = swept(harness, 855)
    assert (found.stopped, found.settled, found.errors) == ((harness.job(),), (RUN,), ())


def test_a_run_that_ends_the_function_keeps_no_orphan_alive_and_no_other_run_unsettled(
    harness: ControlHarness,
) -> None:
    """Each sweep meets the same end, so the runs come in another order each time."""
    random.seed(0)
    name = orphan(harness)
    others = [f"other-{number}" for number in range(3)]
    for run in ("poisoned", *others):
        harness.plan(run)
        harness.arm(run=run)
        cut_off(harness, run)
        harness.cloud.clock.advance(1)
    harness.cloud.clock.advance(YOUNG_SECONDS)
    harness.cloud.training.stop_seconds = 1
    # The first read shows whose the job is.
    harness.cloud.calls.inject(Fault("GetObject", FunctionEndedError(), when=reads("poisoned"), count=None, skip=1))
    with pytest.raises(FunctionEndedError):
        swept(harness)
    assert name in harness.cloud.training.names("Stopped", "Stopping")
    assert harness.cloud.training.names("InProgress") == []
    for _ in range(20):
        with suppress(FunctionEndedError):
            swept(harness)
    results = [harness.result(run) for run in ("poisoned", *others)]
    assert [result is not None for result in results] == [False, True, True, True]


@pytest.mark.parametrize(
    ("fault", "settled", "is_stopped"),
    [
        (Fault("ListTrainingJobs", AwsError("AccessDeniedException")), (RUN,), False),
        (Fault("ListExecutions", AwsError("AccessDeniedException")), (RUN,), False),
        (Fault("ListExecutions", AwsError("AccessDeniedException"), skip=1), (), True),
        (Fault("GetObject", AwsError("AccessDenied", status=403), when=reads("gone")), (RUN,), True),
    ],
    ids=["jobs", "running executions", "ended executions", "a record"],
)
def test_a_step_that_fails_keeps_no_other_step_from_its_turn(
    harness: ControlHarness, fault: Fault, settled: tuple[str, ...], is_stopped: bool
) -> None:
    name = orphan(harness)
    harness.plan()
    harness.arm()
    cut_off(harness)
    harness.cloud.clock.advance(YOUNG_SECONDS)
    harness.cloud.calls.inject(fault)
    found = swept(harness)
    assert fault.fired == 1
    assert found.settled == settled
    assert (name in found.stopped) is (is_stopped and not found.errors[0].startswith(name))
    assert "AccessDenied" in found.errors[0]
    harness.cloud.calls.faults.clear()
    swept(harness)
    assert harness.cloud.training.names("InProgress") == []
    assert harness.result() is not None


@pytest.mark.parametrize("operation", ["GetObject", "PutObject"])
def test_one_run_whose_documents_are_denied_keeps_no_other(harness: ControlHarness, operation: str) -> None:
    for run in ("denied", RUN):
        harness.plan(run)
        harness.arm(run=run)
        cut_off(harness, run)
    denied = Fault(
        operation,
        AwsError("AccessDenied", "kms:Decrypt", 403),
        count=None,
        when=lambda call: call.parameters["Key"].startswith("control/denied/"),
    )
    harness.cloud.calls.inject(denied)
    found = swept(ControlHarness(cloud=harness.cloud))
    assert found.settled == (RUN,)
    assert all(error.startswith("denied: ") for error in found.errors)
    harness.cloud.calls.faults.clear()
    assert swept(harness).settled == ("denied",)


def test_jobs_of_a_running_run_whose_fence_stands_are_stopped(harness: ControlHarness) -> None:
    """The function that raised the fence (a timer's, for instance) could not stop them, whatever Lambda tried."""
    run = harness.plan()
    harness.arm()
    harness.plan("healthy")
    harness.arm(run="healthy")
    fence = Fence(verdict=Verdict.FAILED, cause=FenceCause.DEADLINE, reason="deadline", at=clock.now())
    run.documents.raise_fence(fence)
    harness.cloud.clock.advance(YOUNG_SECONDS)
    assert swept(harness) == Swept((), (harness.job(),), (), ())
    assert harness.cloud.training.names("InProgress") == ["muster-healthy-r0-a1"]


def test_orphans_for_which_the_time_is_too_short_are_named(harness: ControlHarness) -> None:
    names = {orphan(harness, f"gone-{number}") for number in range(30)}
    harness.cloud.calls.inject(Fault("StopTrainingJob", delay_seconds=10, count=None))
    found = swept(harness, 100, young_seconds=0)
    assert {*found.stopped, *found.left} == names
    assert found.left
    assert set(swept(harness, young_seconds=0).stopped) == set(found.left)


def test_the_records_show_whose_an_orphan_is_so_its_tags_are_not_asked_for(harness: ControlHarness) -> None:
    """All of an account share the rate of ListTags."""
    harness.plan()
    harness.arm()
    harness.deliver()
    harness.cloud.workflow.succeed(RUN)
    harness.cloud.calls.reset()
    assert swept(harness, young_seconds=0).stopped == (harness.job(),)
    assert harness.cloud.calls.counts()["ListTags"] == 0


def test_clocks_that_differ_by_minutes_change_nothing(harness: ControlHarness) -> None:
    """Of the function that planned the run, the one that stopped it and the one that sweeps."""
    with clock.replaced(SkewedClock(harness.cloud.clock, 120)):
        harness.plan()
        harness.arm()
        harness.plan("young")
        harness.arm(run="young")
    cut_off(harness)
    with clock.replaced(SkewedClock(harness.cloud.clock, -120)):
        found = swept(harness)
    assert found == Swept((RUN,), (), (), ())
    result = harness.result()
    assert result is not None
    assert (result.verdict, harness.emitted().count("Run Failed")) == (Verdict.FAILED, 1)
    # The listing of executions does not show yet to which one this job belongs.
    unlisted = orphan(harness, "unlisted")
    with clock.replaced(SkewedClock(harness.cloud.clock, 120)):
        assert swept(harness) == NOTHING
    assert harness.cloud.training.names("InProgress") == ["muster-young-r0-a1", unlisted]
