"""Clearing up after an execution that ended before its run was settled, and the one end of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.result import Verdict
from muster.contract.run.run_document import Manifest
from muster.control.active_run import ActiveRun
from muster.control.admission import AdmitRequest, admit
from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.finish import finish_run
from muster.control.reporting.report_page import page_of
from muster.control.runtime.parallel import OutOfTimeError
from muster.control.stop import StillRunningError
from tests.memory import AwsError, Fault, server_error, throttle
from tests.memory.clock import START
from tests.memory.harness import RUN, ControlHarness, budget

POLICY = {"on": ["failed", "user-code"], "max": 3}
FENCE = Fence(verdict=Verdict.FAILED, cause=FenceCause.QUORUM_LOST, reason="replica 0 was lost", at="t")


class FunctionEndedError(BaseException):
    """The function's time is over: no code of it runs any more."""


def cut_off(harness: ControlHarness, status: str = "FAILED", run: str = RUN) -> ExecutionEnded:
    """End the execution; the detail of the event that says so."""
    if status == "ABORTED":
        arn = harness.cloud.workflow.execution_arn(run)
        harness.cloud.client("stepfunctions").stop_execution(executionArn=arn)
    else:
        harness.cloud.workflow.fail(run, "States.Runtime", status=status)
    details = [event["detail"] for event in harness.cloud.notifications.drain() if event["source"] == "aws.states"]
    return ExecutionEnded.model_validate(details[-1])


def cleared(harness: ControlHarness, ended: ExecutionEnded, seconds: float = 600) -> bool:
    return clear_up(harness.plane, harness.plane.runs.find(ended.run), ended, budget(seconds))


# --- an execution that was cut off ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "verdict", "cause", "reason"),
    [
        ("ABORTED", Verdict.STOPPED, FenceCause.EXECUTION_STOPPED, "the execution was stopped"),
        ("FAILED", Verdict.FAILED, FenceCause.EXECUTION_FAILED, "the execution ended as FAILED"),
        ("TIMED_OUT", Verdict.FAILED, FenceCause.EXECUTION_FAILED, "the execution ended as TIMED_OUT"),
    ],
)
def test_the_jobs_are_stopped_and_the_run_is_settled(
    harness: ControlHarness, status: str, verdict: Verdict, cause: FenceCause, reason: str
) -> None:
    run = harness.plan(replicas=2)
    for rank in range(2):
        harness.arm(rank)
    assert cleared(harness, cut_off(harness, status))
    assert len(harness.cloud.training.names("Stopped")) == 2
    fence, result = run.documents.fence(), harness.result()
    assert fence is not None
    assert result is not None
    assert (fence.cause, fence.reason, fence.verdict) == (cause, reason, verdict)
    assert (result.verdict, result.reason) == (verdict, reason)
    assert [replica.outcome.value for replica in result.replicas] == ["stopped", "stopped"]
    assert harness.emitted()[-1] == ("Run Stopped" if status == "ABORTED" else "Run Failed")
    assert page_of(run) is not None


def test_a_run_that_was_stopping_keeps_its_cause(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    run.documents.raise_fence(FENCE)
    assert cleared(harness, cut_off(harness))
    result = harness.result()
    assert result is not None
    assert result.reason == FENCE.reason


def test_an_execution_whose_name_was_taken_does_not_stop_the_run_that_owns_it(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    ended = ExecutionEnded(execution_arn=f"{run.plan.execution_arn}-other", name=RUN, status="FAILED", started_at=START)
    assert not cleared(harness, ended)
    assert run.documents.fence() is None
    assert harness.cloud.training.names("InProgress") == [harness.job()]


def test_a_refused_execution_with_the_arn_of_an_old_run_does_not_end_that_run_again(harness: ControlHarness) -> None:
    """Step Functions frees a name 90 days after the end of its execution; the new execution has the same ARN."""
    run = harness.plan(rerun=POLICY)
    harness.arm()
    harness.cloud.training.fail(harness.job(), "AlgorithmError: ExitCode 1")
    harness.deliver()
    finish_run(harness.plane, run, budget(), verified=False)
    harness.cloud.workflow.fail(RUN, "Muster.RunFailed")
    harness.cloud.clock.advance(91 * 86_400)
    harness.executions.start(RUN, "{}")
    before = harness.emitted()
    ended = cut_off(harness)
    assert not cleared(harness, ended)
    assert (harness.emitted(), harness.executions.live_runs()) == (before, set())
    [listed] = harness.executions.ended(["FAILED"], ended.started_at)
    assert listed.started_at == ended.started_at


def test_an_execution_without_a_run_has_nothing_to_clear_up(harness: ControlHarness) -> None:
    harness.executions.start("never-planned", "{}")
    assert not cleared(harness, cut_off(harness, run="never-planned"))


def test_an_execution_with_a_long_name_belongs_to_its_run(harness: ControlHarness) -> None:
    name = "a-name-that-no-training-job-could-hold-" + "x" * 40
    ended = ExecutionEnded(execution_arn="arn", name=name, status="FAILED", started_at=START)
    assert ended.run != name
    assert ended.run.startswith("a-name-that-no")


def test_a_run_that_was_settled_is_not_fenced(harness: ControlHarness) -> None:
    """The workflow had settled it and was cut off before its end."""
    run = harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    finish_run(harness.plane, run, budget())
    assert cleared(harness, cut_off(harness))
    assert run.documents.fence() is None
    result = harness.result()
    assert result is not None
    assert result.verdict is Verdict.SUCCEEDED
    assert harness.emitted().count("Run Succeeded") == 1


# --- trouble --------------------------------------------------------------------------------------


def test_jobs_that_outlast_the_budget_leave_a_result_and_are_an_error(harness: ControlHarness) -> None:
    harness.plan(rerun=POLICY)
    harness.arm()
    harness.cloud.training.stop_seconds = 3_600
    ended = cut_off(harness)
    with pytest.raises(StillRunningError, match="1 jobs of one are still active"):
        cleared(harness, ended, 100)
    # A fifth of the time is left for settling.
    assert 80 <= harness.cloud.clock.monotonic() < 100
    assert harness.result() is not None
    assert "Run Failed" in harness.emitted()
    # The job is still there: nothing may share its rendezvous.
    assert harness.executions.live_runs() == set()
    # Called again once the job has ended, it starts the continuation.
    harness.cloud.clock.advance(3_600)
    assert cleared(harness, ended)
    assert harness.executions.live_runs() == {"one-x2"}
    assert harness.emitted().count("Run Failed") == 1


def test_a_stop_that_failed_is_an_error_although_all_jobs_are_gone(harness: ControlHarness) -> None:
    run = harness.plan(replicas=2, rerun=POLICY)
    for rank in range(2):
        harness.arm(rank)
    harness.cloud.calls.inject(Fault("StopTrainingJob", AwsError("AccessDeniedException", "no", 400)))
    ended = cut_off(harness)
    with pytest.raises(ClientError, match="AccessDeniedException"):
        cleared(harness, ended)
    assert len(harness.cloud.training.names("Stopped")) == 2
    assert harness.result() is not None
    assert page_of(run) is not None
    assert harness.executions.live_runs() == set()


@pytest.mark.parametrize("throttled", [300, 800, 845])
def test_throttled_stops_leave_the_time_for_reading_the_manifests(harness: ControlHarness, throttled: float) -> None:
    run = harness.plan(replicas=2)
    for rank in range(2):
        harness.arm(rank)
    harness.deliver()
    manifest = Manifest(checkpoint_s3_bucket="s3://bucket/final", round=7, checksum="ab" * 32, metrics={})
    run.documents.store.create(f"output/{RUN}/{harness.job()}/manifest.json", manifest.to_json())
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    ended = cut_off(harness, "ABORTED")
    began = harness.cloud.clock.monotonic()
    within = Fault(
        "StopTrainingJob",
        throttle("StopTrainingJob").error,
        count=None,
        when=lambda _: harness.cloud.clock.monotonic() - began < throttled,
    )
    harness.cloud.calls.inject(within)
    if throttled == 300:
        assert cleared(harness, ended, 855)
    else:
        with pytest.raises((ClientError, OutOfTimeError, StillRunningError)):
            cleared(harness, ended, 855)
        # Lambda calls again.
        assert harness.result() is not None or cleared(harness, ended, 855)
    assert harness.cloud.clock.monotonic() - began < 2 * 855
    result = harness.result()
    assert result is not None
    assert [replica.checkpoint_uri for replica in result.replicas] == ["s3://bucket/final", None]


@pytest.mark.parametrize("overdue", [False, True])
def test_a_run_with_more_jobs_than_a_call_has_time_for_is_settled_once_all_were_asked_to_stop(
    harness: ControlHarness, overdue: bool
) -> None:
    """Thousands of looks at jobs that train would use up the rate of SageMaker. After half an hour it is settled."""
    run = harness.plan(replicas=40)
    for rank in range(40):
        harness.arm(rank)
    harness.deliver()
    ended = cut_off(harness)
    if overdue:
        run.documents.raise_fence(FENCE.model_copy(update={"at": "2025-12-31T23:00:00.000Z"}))
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
    run = harness.plan(replicas=2)
    for rank in range(2):
        harness.arm(rank)
    harness.plane.store.s3.put_object(Bucket="bucket", Key=run.documents.layout.record(0), Body=b"damaged")
    with pytest.raises(Exception, match="cannot be read"):
        cleared(harness, cut_off(harness))
    assert len(harness.cloud.training.names("Stopped")) == 2
    result = harness.result()
    assert result is not None
    assert [replica.outcome.value for replica in result.replicas] == ["unknown", "stopped"]


# --- the end of a run, once -----------------------------------------------------------------------


def test_a_failed_run_whose_execution_was_cut_off_is_continued(harness: ControlHarness) -> None:
    harness.plan(rerun=POLICY)
    harness.arm()
    harness.cloud.training.fail(harness.job(), "AlgorithmError: ExitCode 1")
    harness.deliver()
    assert cleared(harness, cut_off(harness))
    assert harness.executions.live_runs() == {"one-x2"}
    assert harness.emitted()[-2:] == ["Run Failed", "Run Rerun"]


def test_a_cancelled_run_is_not_continued(harness: ControlHarness) -> None:
    harness.plan(rerun=POLICY)
    harness.arm()
    assert cleared(harness, cut_off(harness, "ABORTED"))
    assert harness.executions.live_runs() == set()


def test_a_run_ends_once_however_often_it_is_finished(harness: ControlHarness) -> None:
    """The workflow's last task, the event of the execution's end and a sweep all finish it."""
    run = harness.plan(rerun=POLICY)
    harness.arm()
    harness.cloud.training.fail(harness.job(), "AlgorithmError: ExitCode 1")
    harness.deliver()
    first = finish_run(harness.plane, run, budget())
    again = [finish_run(harness.plane, run, budget()) for _ in range(2)]
    assert again == [first, first]
    assert first.continued_by == "one-x2"
    assert first.page_uri == "s3://bucket/control/one/report.html"
    assert harness.emitted().count("Run Failed") == 1


@pytest.mark.parametrize("operation", ["StartExecution", "PutEvents", "PutObject"])
def test_an_end_that_was_cut_off_is_completed_by_the_next_call(harness: ControlHarness, operation: str) -> None:
    """The page comes last: where it stands, the end was announced."""
    run = harness.plan(rerun=POLICY)
    harness.arm()
    harness.cloud.training.fail(harness.job(), "AlgorithmError: ExitCode 1")
    harness.deliver()
    # PutObject: of the page, not of the result.
    skip = 1 if operation == "PutObject" else 0
    harness.cloud.calls.inject(Fault(operation, FunctionEndedError(), skip=skip))
    with pytest.raises(FunctionEndedError):
        finish_run(harness.plane, run, budget())
    finished = finish_run(harness.plane, run, budget())
    assert (finished.continued_by, finished.page_uri) == ("one-x2", page_of(run))
    assert "Run Failed" in harness.emitted()
    assert harness.executions.live_runs() == {RUN, "one-x2"}


@pytest.mark.parametrize("error", [AwsError("AccessDenied", status=403), server_error("PutObject").error])
def test_a_page_that_cannot_be_written_keeps_no_run_from_its_end(
    harness: ControlHarness, error: AwsError | BaseException | None
) -> None:
    run = harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    page = run.documents.layout.page
    harness.cloud.calls.inject(Fault("PutObject", error, count=None, when=lambda call: call.parameters["Key"] == page))
    finished = finish_run(harness.plane, run, budget())
    assert (finished.page_uri, finished.left[0].partition(":")[0]) == (None, "write its page")
    assert harness.emitted()[-1] == "Run Succeeded"
    assert harness.result() == finished.result


def test_jobs_that_may_be_left_keep_the_continuation_back(harness: ControlHarness) -> None:
    run = harness.plan(rerun=POLICY)
    harness.arm()
    harness.cloud.training.fail(harness.job(), "AlgorithmError: ExitCode 1")
    harness.deliver()
    assert finish_run(harness.plane, run, budget(), verified=False).continued_by is None
    assert harness.executions.live_runs() == {RUN}


class TestInAQueue:
    """In a stack that runs two replicas at once."""

    @pytest.fixture
    def harness(self) -> Iterator[ControlHarness]:
        with ControlHarness(cap=2).installed() as harness:
            yield harness

    def test_the_end_of_a_run_frees_its_replicas(self, harness: ControlHarness) -> None:
        runs = [harness.plan(name, replicas=2) for name in ("first", "second")]
        tokens = [admitted(harness, run) for run in runs]
        assert [harness.output(token) for token in tokens] == [{}, None]
        finish_run(harness.plane, runs[0], budget())
        assert harness.output(tokens[1]) == {}

    def test_a_run_that_is_cut_off_while_it_waits_leaves_the_queue(self, harness: ControlHarness) -> None:
        runs = [harness.plan(name, replicas=2) for name in ("first", "second", "third")]
        tokens = [admitted(harness, run) for run in runs]
        assert cleared(harness, cut_off(harness, "ABORTED", "second"))
        finish_run(harness.plane, runs[0], budget())
        assert [harness.output(token) for token in tokens] == [{}, None, {}]


def admitted(harness: ControlHarness, run: ActiveRun) -> str:
    token = harness.cloud.workflow.token(run.plan.run)
    admit(harness.plane, AdmitRequest(run=run.plan.run, token=token))
    return token


def test_a_run_is_not_settled_before_its_fence_is_raised(harness: ControlHarness) -> None:
    """Without the fence a cancelled run would be a failed one, and its rerun policy would continue it."""
    harness.plan(rerun=POLICY)
    harness.arm()
    failing = throttle("PutObject", when=lambda call: call.parameters["Key"].endswith("stopping.json"))
    harness.cloud.calls.inject(failing)
    ended = cut_off(harness, "ABORTED")
    with pytest.raises(ClientError, match="SlowDown"):
        cleared(harness, ended)
    assert harness.result() is None
    # Lambda calls again.
    assert cleared(harness, ended)
    result = harness.result()
    assert result is not None
    assert result.verdict is Verdict.STOPPED
    assert harness.executions.live_runs() == set()


def test_a_run_ends_although_its_page_cannot_be_looked_up(harness: ControlHarness) -> None:
    run = harness.plan()
    fault = Fault(
        "ListObjectsV2",
        server_error("ListObjectsV2").error,
        when=lambda call: str(call.parameters["Prefix"]).endswith("report.html"),
        count=None,
    )
    harness.cloud.calls.inject(fault)
    finished = finish_run(harness.plane, run, budget())
    assert fault.fired == 1
    assert harness.result() == finished.result
    assert harness.emitted()[-1] == "Run Failed"
