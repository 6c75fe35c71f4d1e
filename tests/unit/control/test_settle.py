"""The end of a run: the result comes first, and nothing that fails after it changes or hides how the run ended."""

from datetime import timedelta
from functools import partial

import pytest
from botocore.exceptions import ClientError

from muster.contract.errors import DocumentError
from muster.contract.run.fence import FenceCause
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.control.active_run import ActiveRun
from muster.control.clear_up import ExecutionEnded
from muster.control.reporting.execution_output import execution_output
from muster.control.runtime.parallel import OutOfTimeError
from muster.control.settle import RETRIES_FOR_THE_REST, UnfinishedError, page_of, settle
from muster.control.stop import StillRunningError
from tests.memory import AwsError, Fault, throttle
from tests.memory.clock import START
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.control_steps import (
    CONTINUED,
    LAMBDA_SECONDS,
    FunctionEndedError,
    Row,
    cleared,
    complete,
    create_job,
    create_late_job,
    cut_off,
    fail,
    finished,
    found,
    launched,
    refuse,
    swept,
)

DENIED = AwsError("AccessDeniedException", "not authorized", 400)


def succeeded(harness: ControlHarness) -> ActiveRun:
    run = launched(harness)
    complete(harness)
    return run


def failed(harness: ControlHarness) -> ActiveRun:
    run = launched(harness, **CONTINUED)
    fail(harness)
    return run


def wrote(harness: ControlHarness, name: str) -> bool:
    return f"control/{RUN}/{name}" in harness.cloud.s3.objects("bucket")


# --- a success stays a success --------------------------------------------------------------------


def test_a_success_stays_a_success_while_training_jobs_cannot_be_listed(row: Row) -> None:
    for minutes, error, is_left in ((2, None, False), (20, None, True), (20, DENIED, True)):
        with row(f"{minutes} minutes: {error}") as harness:
            run = succeeded(harness)
            orphan = create_late_job(harness)
            refuse(harness, "ListTrainingJobs", 60 * minutes, error)
            end = finished(harness)
            output = execution_output(run.plan, end, "s3://bucket/control/one/result.json")
            assert (output["verdict"], end.page_uri is not None) == ("succeeded", True)
            assert (harness.result(), harness.emitted()[-1]) == (end.result, "Run Succeeded")
            assert (end.left == (), run.documents.is_finished()) == (not is_left, not is_left)
            if is_left:
                # It is told what was not done, and a sweep does it.
                assert output["left"] == list(end.left)
                assert [left.partition(":")[0] for left in end.left] == ["stop the jobs that are left"]
                assert harness.cloud.training.names("InProgress") == [orphan]
                harness.cloud.workflow.succeed(RUN, output)
                harness.cloud.clock.advance(60 * minutes)
                swept(harness)
            assert harness.cloud.training.names("InProgress") == []


def test_what_a_success_leaves_undone_is_done_by_a_retry_of_the_task(harness: ControlHarness) -> None:
    """No event and no sweep looks at an execution that has succeeded. After the retries it ends nevertheless."""
    run = succeeded(harness)
    last = RETRIES_FOR_THE_REST
    list_of_runs = Fault("GetObject", DENIED, when=lambda call: call.parameters["Key"].startswith("ended/"), count=None)
    harness.cloud.calls.inject(list_of_runs)
    for retry in (0, last - 1):
        with pytest.raises(UnfinishedError, match="list it among the runs that have ended: "):
            settle(harness.plane, run, retry, budget(LAMBDA_SECONDS))
    assert settle(harness.plane, run, last, budget(LAMBDA_SECONDS)).left
    list_of_runs.count = 0
    assert settle(harness.plane, run, 1, budget(LAMBDA_SECONDS)).left == ()
    assert (run.documents.is_finished(), len(harness.keys("ended/"))) == (True, 1)
    assert harness.emitted().count("Run Succeeded") == 1


def test_whatever_fails_after_the_result_for_good_the_run_has_succeeded(row: Row) -> None:
    for operation, key in (
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
    ):
        for error in (DENIED, AwsError("InternalFailure", "again", 500)):
            with row(f"{operation} {key}: {error.code}", cap=4) as harness:
                succeeded(harness)
                fault = refuse(harness, operation, float("inf"), error)
                fault.when = lambda call, key=key: str(call.parameters.get("Key", key)).startswith(key)
                end = finished(harness)
                assert (end.result.verdict, harness.result()) == (Verdict.SUCCEEDED, end.result)
                assert (harness.emitted()[-1] == "Run Succeeded") is (operation != "PutEvents")
                assert harness.cloud.clock.monotonic() < LAMBDA_SECONDS


def test_a_success_by_quorum_stays_one_when_muster_fails_before_it_is_settled(harness: ControlHarness) -> None:
    """The settlement fails for hours; the execution's end then raises a fence, and the run is settled by its event."""
    run = launched(harness, 2, on_replica_failure="continue", min_replicas=1)
    complete(harness, 0)
    fail(harness, rank=1)
    assert cleared(harness, cut_off(harness))
    result = found(harness.result())
    assert (result.verdict, result.reason) == (Verdict.SUCCEEDED, "1 of 2 replicas succeeded")
    assert run.documents.fence() is not None


def test_jobs_that_are_left_of_the_run_are_stopped_after_its_result_is_written(harness: ControlHarness) -> None:
    succeeded(harness)
    orphan = create_late_job(harness)
    foreign = create_job(harness, harness.job(attempt=3), Tags=[])
    launched(harness, 1, "one-more")
    settled: list[bool] = []
    harness.cloud.calls.inject(Fault("StopTrainingJob", action=lambda: settled.append(harness.result() is not None)))
    finished(harness)
    assert settled == [True]
    assert harness.cloud.training.names("Stopping") == [orphan]
    assert harness.cloud.training.names("InProgress") == [foreign, "muster-one-more-r0-a1"]


# --- once -----------------------------------------------------------------------------------------


def test_the_end_is_announced_once_although_its_page_can_never_be_written(harness: ControlHarness) -> None:
    page = failed(harness).documents.layout.page
    harness.cloud.calls.inject(Fault("PutObject", DENIED, count=None, when=lambda call: call.parameters["Key"] == page))
    finished(harness)
    ended = cut_off(harness)
    for _ in range(3):
        with pytest.raises(UnfinishedError, match="write its page"):
            cleared(harness, ended)
    for _ in range(2):
        [error] = swept(harness).errors
        assert "write its page" in error
    assert harness.emitted().count("Run Failed") == 1


def test_an_end_that_every_call_of_stop_left_incomplete_is_completed_by_the_sweep(row: Row) -> None:
    cuts = {
        "after the result": ("*", lambda harness, _: wrote(harness, "result.json")),
        "after the announcement": ("StartExecution", lambda *_: True),
        "before the mark": ("PutObject", lambda _, call: call.parameters["Key"].endswith("finished.json")),
    }
    for name, (operation, is_time) in cuts.items():
        with row(name) as harness:
            run = failed(harness)
            ended = cut_off(harness)
            for _ in range(3):
                cut = Fault(operation, FunctionEndedError(), when=partial(is_time, harness))
                harness.cloud.calls.inject(cut)
                with pytest.raises(FunctionEndedError):
                    cleared(harness, ended)
                harness.cloud.calls.faults.clear()
            assert harness.result() is not None
            assert not run.documents.is_finished()
            swept(harness)
            assert "Run Failed" in harness.emitted()
            assert harness.executions.live_runs() == {"one-x2"}
            assert run.documents.is_finished()


def test_a_step_that_fails_after_the_settlement_of_an_ended_execution_is_an_error(harness: ControlHarness) -> None:
    """Lambda calls Stop again; the sweep does it where that was in vain too."""
    failed(harness)
    ended = cut_off(harness)
    harness.cloud.calls.inject(Fault("StartExecution", DENIED))
    with pytest.raises(UnfinishedError, match="continue the run: "):
        cleared(harness, ended)
    assert harness.result() is not None
    assert cleared(harness, ended)
    assert harness.executions.live_runs() == {"one-x2"}


# --- minutes of trouble ---------------------------------------------------------------------------


def cancelled(harness: ControlHarness, *, noted: bool) -> ExecutionEnded:
    """A run that a user stops; `noted`: the record shows by an event that the job is the run's."""
    launched(harness)
    if noted:
        harness.deliver()
    return cut_off(harness, "ABORTED")


def assert_was_stopped(harness: ControlHarness) -> None:
    """The run is stopped, and so is its replica; people were told once."""
    result = found(harness.result())
    assert (result.verdict, result.replicas[0].outcome) == (Verdict.STOPPED, ReplicaOutcome.STOPPED)
    assert harness.emitted().count("Run Stopped") == 1


def test_a_cancel_outlasts_ten_minutes_of_throttling(row: Row) -> None:
    """Within two of the three calls of Stop."""
    for operation in ("StopTrainingJob", "ListTrainingJobs", "DescribeTrainingJob", "ListTags"):
        for noted in (True, False):
            with row(f"{operation}, noted: {noted}") as harness:
                ended = cancelled(harness, noted=noted)
                refuse(harness, operation, 600)
                try:
                    cleared(harness, ended)
                except (ClientError, StillRunningError):
                    assert harness.cloud.training.names("InProgress") == []
                    assert cleared(harness, ended)
                assert harness.cloud.clock.monotonic() < 900
                assert harness.cloud.training.names("Stopped") == [harness.job()]
                assert_was_stopped(harness)


def test_a_run_whose_end_is_complete_is_looked_at_again_where_its_jobs_cannot_be_listed(
    harness: ControlHarness,
) -> None:
    launched(harness)
    fail(harness)
    finished(harness)
    ended = cut_off(harness)
    harness.cloud.calls.inject(Fault("ListTrainingJobs", DENIED))
    with pytest.raises(ClientError, match="ListTrainingJobs"):
        cleared(harness, ended)
    assert cleared(harness, ended)


def test_after_three_calls_of_stop_in_vain_the_sweep_leaves_nothing_alive(row: Row) -> None:
    """Where whose a job is cannot be seen, the sweep writes the result too; otherwise stop has told people already."""
    for operation, error, is_told in (
        ("StopTrainingJob", None, True),
        ("StopTrainingJob", DENIED, True),
        ("ListTrainingJobs", None, True),
        ("ListTrainingJobs", DENIED, True),
        ("DescribeTrainingJob", DENIED, False),
        ("ListTags", DENIED, False),
    ):
        with row(f"{operation}: {error}") as harness:
            ended = cancelled(harness, noted=is_told)
            refuse(harness, operation, 4 * 900, error)
            for _ in range(3):
                with pytest.raises((ClientError, StillRunningError), match=operation if error else None):
                    cleared(harness, ended)
            before = harness.result()
            assert (before is not None, harness.emitted().count("Run Stopped")) == (is_told, int(is_told))
            harness.cloud.clock.advance(6 * 3_600)
            done = swept(harness)
            assert (done.settled, done.errors) == ((RUN,), ())
            assert before is None or before == harness.result()
            assert harness.cloud.training.names("InProgress", "Stopping") == []
            assert_was_stopped(harness)


def test_a_key_that_denies_is_one_clear_error_and_loses_no_run(row: Row) -> None:
    """The key policy of the bucket's KMS key denies the functions; later it is put right."""
    message = "User: function is not authorized to perform: kms:Decrypt on resource: key"
    for operation in ("GetObject", "PutObject"):
        with row(operation) as harness:
            succeeded(harness)
            refuse(harness, operation, 600, AwsError("AccessDenied", message, 403))
            with pytest.raises(ClientError, match="kms:Decrypt on resource: key"):
                finished(harness)
            assert not wrote(harness, "result.json")
            # The workflow tries for hours.
            harness.cloud.clock.advance(600)
            assert finished(harness).result.verdict is Verdict.SUCCEEDED
            assert harness.emitted().count("Run Succeeded") == 1


# --- an execution that was cut off ----------------------------------------------------------------


def test_the_jobs_are_stopped_and_the_run_is_settled(row: Row) -> None:
    failed, stopped = FenceCause.EXECUTION_FAILED, FenceCause.EXECUTION_STOPPED
    for status, verdict, cause, reason, events in (
        ("ABORTED", Verdict.STOPPED, stopped, "the execution was stopped: cancelled by anna", ["Run Stopped"]),
        ("FAILED", Verdict.FAILED, failed, "the execution ended as FAILED", ["Run Failed", "Run Continued"]),
        ("TIMED_OUT", Verdict.FAILED, failed, "the execution ended as TIMED_OUT", ["Run Failed", "Run Continued"]),
    ):
        with row(status) as harness:
            run = launched(harness, 2, **CONTINUED)
            ended = cut_off(harness, status)
            assert cleared(harness, ended.model_copy(update={"cause": "cancelled by anna."}))
            assert len(harness.cloud.training.names("Stopped")) == 2
            fence, result = found(run.documents.fence()), found(harness.result())
            assert (fence.cause, fence.reason, fence.verdict) == (cause, reason, verdict)
            assert (result.verdict, result.reason) == (verdict, reason)
            assert [replica.outcome.value for replica in result.replicas] == ["stopped", "stopped"]
            assert harness.emitted()[2:] == events
            assert harness.executions.live_runs() == (set() if verdict is Verdict.STOPPED else {"one-x2"})
            assert page_of(run) is not None


def test_an_execution_whose_name_was_taken_does_not_stop_the_run_that_owns_it(harness: ControlHarness) -> None:
    """Step Functions frees a name 90 days after the end of its execution; the new execution has the same ARN."""
    run = launched(harness)
    arn = run.plan.execution_arn
    for taken, started_at in ((f"{arn}-other", START), (arn, START + timedelta(days=91))):
        ended = ExecutionEnded(execution_arn=taken, name=RUN, status="FAILED", started_at=started_at)
        assert not cleared(harness, ended), started_at
        assert run.documents.fence() is None
    assert harness.cloud.training.names("InProgress") == [harness.job()]


def test_a_run_is_not_settled_before_its_fence_is_raised(harness: ControlHarness) -> None:
    """Without the fence a cancelled run would be a failed one, and its continuation policy would continue it."""
    launched(harness, **CONTINUED)
    fence = throttle("PutObject", when=lambda call: call.parameters["Key"].endswith("stopping.json"))
    harness.cloud.calls.inject(fence)
    ended = cut_off(harness, "ABORTED")
    with pytest.raises(ClientError, match="SlowDown"):
        cleared(harness, ended)
    assert harness.result() is None
    assert cleared(harness, ended)
    assert found(harness.result()).verdict is Verdict.STOPPED
    assert harness.executions.live_runs() == set()


def test_a_stop_that_failed_is_an_error_although_all_jobs_are_gone(harness: ControlHarness) -> None:
    run = launched(harness, 2, **CONTINUED)
    harness.cloud.calls.inject(Fault("StopTrainingJob", AwsError("AccessDeniedException", "no", 400)))
    with pytest.raises(ClientError, match="AccessDeniedException"):
        cleared(harness, cut_off(harness))
    assert len(harness.cloud.training.names("Stopped")) == 2
    assert harness.result() is not None
    assert page_of(run) is not None
    assert harness.executions.live_runs() == set()


def test_a_run_with_more_jobs_than_a_call_has_time_for_is_settled_once_all_were_asked_to_stop(row: Row) -> None:
    """Thousands of looks at jobs that train would use up the rate of SageMaker. After half an hour it is settled."""
    for overdue in (False, True):
        with row("overdue" if overdue else "in time") as harness:
            run = launched(harness, 40)
            harness.deliver()
            ended = cut_off(harness)
            if overdue:
                run.documents.raise_fence(ended.fence.model_copy(update={"at": "2025-12-31T23:00:00.000Z"}))
            harness.cloud.calls.inject(Fault("StopTrainingJob", delay_seconds=10, count=None))
            harness.cloud.calls.log.clear()
            with pytest.raises((OutOfTimeError, StillRunningError)):
                cleared(harness, ended, 100)
            assert (harness.result() is not None) is overdue
            assert (harness.cloud.calls.counts()["DescribeTrainingJob"] > 0) is overdue
            harness.cloud.calls.faults.clear()
            harness.deliver()
            assert cleared(harness, ended)
            assert len(harness.cloud.training.names("Stopped")) == 40
            assert harness.result() is not None


def test_a_damaged_record_keeps_no_job_alive_and_no_result_from_being_written(harness: ControlHarness) -> None:
    run = launched(harness, 2)
    harness.plane.store.s3.put_object(Bucket="bucket", Key=run.documents.layout.record(0), Body=b"damaged")
    with pytest.raises(DocumentError):
        cleared(harness, cut_off(harness))
    assert len(harness.cloud.training.names("Stopped")) == 2
    outcomes = [replica.outcome.value for replica in found(harness.result()).replicas]
    assert outcomes == ["unknown", "stopped"]
