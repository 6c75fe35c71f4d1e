"""The end of a run: the result comes first, and nothing that fails after it changes or hides how the run ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.control.active_run import ActiveRun
from muster.control.clear_up import ExecutionEnded, UnfinishedError, clear_up
from muster.control.finish import Finished, finish_run
from muster.control.reporting.execution_output import execution_output
from muster.control.stop import StillRunningError
from muster.control.sweep import SweepRequest, sweep
from tests.memory import AwsError, Call, Fault, throttle
from tests.memory.clock import START
from tests.memory.harness import RUN, ControlHarness, budget

POLICY = {"on": ["failed"], "max": 3}
LAMBDA_SECONDS = 855.0  # of 900; the rest is a reserve
DENIED = AwsError("AccessDeniedException", "not authorized", 400)


class FunctionEndedError(BaseException):
    """The function's time is over: no code of it runs any more."""


def succeeded(harness: ControlHarness, **fields: Any) -> ActiveRun:
    run = harness.plan(**fields)
    harness.arm()
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    return run


def failed(harness: ControlHarness) -> ActiveRun:
    run = harness.plan(rerun=POLICY)
    harness.arm()
    harness.cloud.training.fail(harness.job(), "AlgorithmError: ExitCode 1")
    harness.deliver()
    return run


def settle_as_the_workflow_does(harness: ControlHarness, run: ActiveRun) -> Finished:
    return finish_run(harness.plane, run, budget(LAMBDA_SECONDS))


def ended(harness: ControlHarness, status: str = "FAILED") -> ExecutionEnded:
    arn = harness.cloud.workflow.execution_arn(RUN)
    return ExecutionEnded(execution_arn=arn, name=RUN, status=status, started_at=START)


def cleared(harness: ControlHarness, status: str = "FAILED") -> bool:
    run = harness.plane.runs.find(RUN)
    return clear_up(harness.plane, run, ended(harness, status), budget(LAMBDA_SECONDS))


def refused(harness: ControlHarness, operation: str, seconds: float, error: AwsError | None = None) -> Fault:
    """Calls of `operation` are throttled, or refused with `error`, for so many seconds from now on."""
    began = harness.cloud.clock.monotonic()

    def still(_: Call) -> bool:
        return harness.cloud.clock.monotonic() - began < seconds

    fault = Fault(operation, error or throttle(operation).error, when=still, count=None)
    harness.cloud.calls.inject(fault)
    return fault


def late_job(harness: ControlHarness) -> str:
    """A job of the run that was created late: its launch was given up before."""
    request = dict(harness.cloud.calls.of("CreateTrainingJob")[0])
    name = harness.job(attempt=2)
    tags = [{**tag, "Value": "2"} if tag["Key"] == "muster:attempt" else tag for tag in request["Tags"]]
    harness.cloud.client("sagemaker").create_training_job(**{**request, "TrainingJobName": name, "Tags": tags})
    return name


# --- a success stays a success --------------------------------------------------------------------


@pytest.mark.parametrize(("minutes", "error", "is_left"), [(2, None, False), (20, None, True), (20, DENIED, True)])
def test_a_success_stays_a_success_while_training_jobs_cannot_be_listed(
    harness: ControlHarness, minutes: float, error: AwsError | None, is_left: bool
) -> None:
    run = succeeded(harness)
    orphan = late_job(harness)
    refused(harness, "ListTrainingJobs", 60 * minutes, error)
    finished = settle_as_the_workflow_does(harness, run)
    output = execution_output(run.plan, finished, "s3://bucket/control/one/result.json")
    assert (output["verdict"], finished.page_uri is not None) == ("succeeded", True)
    assert harness.result() == finished.result
    assert harness.emitted()[-1] == "Run Succeeded"
    if not is_left:
        assert (finished.left, run.documents.is_finished()) == ((), True)
        assert harness.cloud.training.names("Stopping") == [orphan]
        return
    # It is told what was not done, and a sweep does it.
    [left] = finished.left
    assert output["left"] == [left]
    assert left.startswith("stop the jobs that are left: ")
    assert harness.cloud.training.names("InProgress") == [orphan]
    harness.cloud.workflow.succeed(RUN, output)
    harness.cloud.clock.advance(60 * minutes)
    sweep(harness.plane, harness.executions, SweepRequest(), budget(LAMBDA_SECONDS))
    assert harness.cloud.training.names("InProgress") == []


@pytest.mark.parametrize(
    ("operation", "key"),
    [
        ("ListTrainingJobs", ""),
        ("ListObjectsV2", ""),
        ("PutEvents", ""),
        ("PutObject", "queue/"),
        ("PutObject", "ended/"),
        ("GetObject", "ended/"),
        ("PutObject", "control/one/report.html"),
        ("PutObject", "control/one/announced.json"),
        ("GetObject", "control/one/announced.json"),
        ("PutObject", "control/one/finished.json"),
    ],
)
@pytest.mark.parametrize("error", [DENIED, AwsError("InternalFailure", "again", 500)])
def test_whatever_fails_after_the_result_for_good_the_run_has_succeeded(
    operation: str, key: str, error: AwsError
) -> None:
    with ControlHarness(cap=4).installed() as harness:
        run = succeeded(harness)
        fault = Fault(
            operation, error, count=None, when=lambda call: str(call.parameters.get("Key", key)).startswith(key)
        )
        harness.cloud.calls.inject(fault)
        finished = settle_as_the_workflow_does(harness, run)
        assert (finished.result.verdict, harness.result()) == (Verdict.SUCCEEDED, finished.result)
        assert harness.cloud.clock.monotonic() < LAMBDA_SECONDS


def test_a_success_by_quorum_stays_one_when_muster_fails_before_it_is_settled(harness: ControlHarness) -> None:
    """The settlement fails for hours; the execution's end then raises a fence, and the run is settled by its event."""
    run = harness.plan(replicas=2, on_replica_failure="continue", min_replicas=1)
    for rank in range(2):
        harness.arm(rank)
    harness.cloud.training.complete(harness.job(0))
    harness.cloud.training.fail(harness.job(1), "AlgorithmError: ExitCode 1")
    harness.deliver()
    harness.cloud.workflow.fail(RUN, "ClientError")
    assert cleared(harness)
    result = harness.result()
    assert result is not None
    assert (result.verdict, result.reason) == (Verdict.SUCCEEDED, "1 of 2 replicas succeeded")
    assert run.documents.fence() is not None


def test_jobs_that_are_left_of_the_run_are_stopped_after_its_result_is_written(harness: ControlHarness) -> None:
    run = succeeded(harness)
    orphan = late_job(harness)
    request = dict(harness.cloud.calls.of("CreateTrainingJob")[0])
    foreign = harness.job(attempt=3)
    harness.cloud.client("sagemaker").create_training_job(**{**request, "TrainingJobName": foreign, "Tags": []})
    harness.plan("one-more", replicas=1)
    harness.arm(run="one-more")
    settled: list[bool] = []
    harness.cloud.calls.inject(Fault("StopTrainingJob", action=lambda: settled.append(harness.result() is not None)))
    settle_as_the_workflow_does(harness, run)
    assert settled == [True]
    assert harness.cloud.training.names("Stopping") == [orphan]
    assert harness.cloud.training.names("InProgress") == [foreign, "muster-one-more-r0-a1"]


def test_a_failed_run_whose_jobs_could_not_be_listed_is_continued_once_they_are_verified(
    harness: ControlHarness,
) -> None:
    run = failed(harness)
    refused(harness, "ListTrainingJobs", 1_200)
    finished = settle_as_the_workflow_does(harness, run)
    assert (finished.continued_by, len(finished.left)) == (None, 1)
    harness.cloud.workflow.fail(RUN, "Muster.RunFailed")
    assert cleared(harness)
    assert harness.executions.live_runs() == {"one-x2"}
    assert harness.emitted().count("Run Failed") == 1
    assert run.documents.is_finished()


# --- once -----------------------------------------------------------------------------------------


def test_the_end_is_announced_once_although_its_page_can_never_be_written(harness: ControlHarness) -> None:
    run = failed(harness)
    page = run.documents.layout.page
    harness.cloud.calls.inject(Fault("PutObject", DENIED, count=None, when=lambda call: call.parameters["Key"] == page))
    settle_as_the_workflow_does(harness, run)
    harness.cloud.workflow.fail(RUN, "Muster.RunFailed")
    for _ in range(3):
        with pytest.raises(UnfinishedError, match="write its page"):
            cleared(harness)
    for _ in range(2):
        [error] = sweep(harness.plane, harness.executions, SweepRequest(), budget(LAMBDA_SECONDS)).errors
        assert "write its page" in error
    assert harness.emitted().count("Run Failed") == 1


def test_an_end_that_the_workflow_has_completed_is_only_verified(harness: ControlHarness) -> None:
    """The execution of each run that fails ends as FAILED, and its event calls Stop."""
    run = failed(harness)
    settle_as_the_workflow_does(harness, run)
    orphan = late_job(harness)
    harness.cloud.workflow.fail(RUN, "Muster.RunFailed")
    before = harness.emitted()
    assert before[-2:] == ["Run Failed", "Run Rerun"]
    assert cleared(harness)
    assert harness.emitted() == before
    assert harness.cloud.training.names("Stopped") == [orphan]


def test_an_end_that_an_older_version_has_announced_is_not_announced_again(harness: ControlHarness) -> None:
    """It wrote the page last, and no marks."""
    run = failed(harness)
    settle_as_the_workflow_does(harness, run)
    for mark in (run.documents.layout.announced, run.documents.layout.finished):
        harness.cloud.client("s3").delete_object(Bucket="bucket", Key=mark)
    harness.cloud.workflow.fail(RUN, "Muster.RunFailed")
    sweep(harness.plane, harness.executions, SweepRequest(), budget(LAMBDA_SECONDS))
    assert harness.emitted().count("Run Failed") == 1
    assert run.documents.is_finished()


def after_the_result(harness: ControlHarness) -> Fault:
    """The function ends at its first call after the one that wrote the result."""
    return Fault("*", FunctionEndedError(), when=lambda _: wrote(harness, "result.json"))


def after_the_announcement(harness: ControlHarness) -> Fault:
    return Fault("StartExecution", FunctionEndedError())


def before_the_mark(harness: ControlHarness) -> Fault:
    return Fault("PutObject", FunctionEndedError(), when=lambda call: call.parameters["Key"].endswith("finished.json"))


def wrote(harness: ControlHarness, name: str) -> bool:
    return f"control/{RUN}/{name}" in harness.cloud.s3.objects("bucket")


@pytest.mark.parametrize("cut", [after_the_result, after_the_announcement, before_the_mark])
def test_an_end_that_every_call_of_stop_left_incomplete_is_completed_by_the_sweep(
    harness: ControlHarness, cut: Callable[[ControlHarness], Fault]
) -> None:
    run = failed(harness)
    harness.cloud.workflow.fail(RUN, "States.Runtime")
    for _ in range(3):
        fault = cut(harness)
        harness.cloud.calls.inject(fault)
        with pytest.raises(FunctionEndedError):
            cleared(harness)
        harness.cloud.calls.faults.clear()
    assert harness.result() is not None
    assert not run.documents.is_finished()
    sweep(harness.plane, harness.executions, SweepRequest(), budget(LAMBDA_SECONDS))
    assert "Run Failed" in harness.emitted()
    assert harness.executions.live_runs() == {"one-x2"}
    assert run.documents.is_finished()


def test_a_step_that_fails_after_the_settlement_of_an_ended_execution_is_an_error(harness: ControlHarness) -> None:
    """Lambda calls Stop again; the sweep does it where that was in vain too."""
    failed(harness)
    harness.cloud.workflow.fail(RUN, "States.Runtime")
    harness.cloud.calls.inject(Fault("StartExecution", DENIED))
    with pytest.raises(UnfinishedError, match="continue the run: "):
        cleared(harness)
    assert harness.result() is not None
    assert cleared(harness)
    assert harness.executions.live_runs() == {"one-x2"}


# --- minutes of trouble ---------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["StopTrainingJob", "ListTrainingJobs", "DescribeTrainingJob", "ListTags"])
@pytest.mark.parametrize("noted", [True, False])
def test_a_cancel_outlasts_ten_minutes_of_throttling(harness: ControlHarness, operation: str, noted: bool) -> None:
    """Within two of the three calls of Stop; `noted`: the record shows by an event that the job is the run's."""
    harness.plan()
    harness.arm()
    if noted:
        harness.deliver()
    harness.cloud.client("stepfunctions").stop_execution(executionArn=harness.cloud.workflow.execution_arn(RUN))
    refused(harness, operation, 600)
    try:
        cleared(harness, "ABORTED")
    except (ClientError, StillRunningError):
        assert harness.cloud.training.names("InProgress") == []
        assert cleared(harness, "ABORTED")
    assert harness.cloud.clock.monotonic() < 900
    assert harness.cloud.training.names("Stopped") == [harness.job()]
    result = harness.result()
    assert result is not None
    assert (result.verdict, result.replicas[0].outcome) == (Verdict.STOPPED, ReplicaOutcome.STOPPED)


@pytest.mark.parametrize("operation", ["StopTrainingJob", "ListTrainingJobs"])
@pytest.mark.parametrize("error", [None, DENIED])
def test_after_three_calls_of_stop_in_vain_the_sweep_leaves_nothing_alive(
    harness: ControlHarness, operation: str, error: AwsError | None
) -> None:
    harness.plan()
    harness.arm()
    harness.deliver()
    harness.cloud.client("stepfunctions").stop_execution(executionArn=harness.cloud.workflow.execution_arn(RUN))
    refused(harness, operation, 4 * 900, error)
    for _ in range(3):
        with pytest.raises((ClientError, StillRunningError)):
            cleared(harness, "ABORTED")
    # What could be done was done: the run has its result, and people were told.
    result = harness.result()
    assert result is not None
    assert result.verdict is Verdict.STOPPED
    assert harness.emitted().count("Run Stopped") == 1
    harness.cloud.clock.advance(6 * 3_600)
    found = sweep(harness.plane, harness.executions, SweepRequest(), budget(LAMBDA_SECONDS))
    assert (found.settled, found.errors) == ((RUN,), ())
    assert harness.cloud.training.names("InProgress", "Stopping") == []
    assert harness.result() == result


@pytest.mark.parametrize("operation", ["DescribeTrainingJob", "ListTags"])
def test_a_cancel_whose_jobs_cannot_be_looked_at_is_completed_once_they_can(
    harness: ControlHarness, operation: str
) -> None:
    """No event has shown yet whose job it is, and a permission is missing."""
    harness.plan()
    harness.arm()
    harness.cloud.client("stepfunctions").stop_execution(executionArn=harness.cloud.workflow.execution_arn(RUN))
    refused(harness, operation, 4 * 900, DENIED)
    for _ in range(3):
        with pytest.raises(ClientError, match=operation):
            cleared(harness, "ABORTED")
    harness.cloud.clock.advance(6 * 3_600)
    found = sweep(harness.plane, harness.executions, SweepRequest(), budget(LAMBDA_SECONDS))
    assert (found.settled, found.errors) == ((RUN,), ())
    assert harness.cloud.training.names("InProgress", "Stopping") == []
    result = harness.result()
    assert result is not None
    assert (result.verdict, result.replicas[0].outcome) == (Verdict.STOPPED, ReplicaOutcome.STOPPED)
    assert harness.emitted().count("Run Stopped") == 1


@pytest.mark.parametrize("operation", ["GetObject", "PutObject"])
def test_a_key_that_denies_is_one_clear_error_and_loses_no_run(harness: ControlHarness, operation: str) -> None:
    """The key policy of the bucket's KMS key denies the functions; later it is put right."""
    run = succeeded(harness)
    message = "User: function is not authorized to perform: kms:Decrypt on resource: key"
    refused(harness, operation, 600, AwsError("AccessDenied", message, 403))
    with pytest.raises(ClientError, match="kms:Decrypt on resource: key"):
        settle_as_the_workflow_does(harness, run)
    assert not wrote(harness, "result.json")
    # The workflow tries for hours.
    harness.cloud.clock.advance(600)
    assert settle_as_the_workflow_does(harness, run).result.verdict is Verdict.SUCCEEDED
    assert harness.emitted().count("Run Succeeded") == 1
