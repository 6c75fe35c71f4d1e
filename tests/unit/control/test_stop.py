"""Stop: the fence, then every job, then a check that none is left; and the timers that ask for it."""

from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.run.fence import FenceCause
from muster.contract.run.result import Result, Verdict
from muster.contract.spec.run_limits import Timer
from muster.control.active_run import ActiveRun
from muster.control.runtime.parallel import OutOfTimeError
from muster.control.stop import StopRequest, raise_fence_and_stop, stop_run, verify_stopped
from muster.control.timer import Fired, fire
from tests.memory import AwsError, Fault, throttle
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.control_steps import (
    BROKEN,
    CANCELLED,
    QUORUM_LOST,
    Row,
    complete,
    create_job,
    fail,
    found,
    launched,
)

REASON = "replica 0 was lost"


def stop(harness: ControlHarness, reason: str = REASON, seconds: float = 600) -> bool:
    return stop_run(harness.plane, StopRequest(run=RUN, reason=reason), budget(seconds))


# --- the fence and the jobs -----------------------------------------------------------------------


def test_a_run_that_has_lost_its_quorum_is_fenced_before_its_jobs_are_stopped(harness: ControlHarness) -> None:
    run, fenced = launched(harness, 2), []
    harness.cloud.calls.inject(Fault("StopTrainingJob", action=lambda: fenced.append(run.documents.fence())))
    stop(harness)
    fence = found(run.documents.fence())
    assert (fence.verdict, fence.cause, fence.reason) == (Verdict.FAILED, FenceCause.QUORUM_LOST, REASON)
    assert fenced == [fence]
    assert harness.cloud.training.names("Stopping") == [harness.job(0), harness.job(1)]
    assert len(StopRequest.model_validate({"run": RUN, "reason": "x" * 32_768}).reason) == 1_024


def test_of_200_replicas_that_are_lost_in_the_same_second_one_call_stops_the_run(harness: ControlHarness) -> None:
    run = launched(harness, 201)
    harness.deliver()
    for rank in range(200):
        harness.cloud.training.fail(harness.job(rank), BROKEN)
    harness.deliver()
    answers = [found(harness.answer(rank)) for rank in range(200)]
    assert {answer["next"] for answer in answers} == {"stop"}
    harness.cloud.calls.reset()
    assert [stop(harness, answer["reason"]) for answer in answers].count(True) == 1
    assert harness.cloud.training.names("Stopping") == [harness.job(200)]
    reads = [call for call in harness.cloud.calls.of("GetObject") if call["Key"].startswith(f"control/{RUN}/replicas/")]
    assert len(reads) == run.plan.spec.replicas
    assert harness.emitted().count("Quorum Lost") == 1


def test_the_retry_of_the_call_that_raised_the_fence_stops_the_jobs(harness: ControlHarness) -> None:
    run = launched(harness, 2)
    harness.cloud.calls.inject(Fault("StopTrainingJob", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        stop(harness)
    harness.cloud.clock.advance(1)
    assert not stop(harness, "replica 1 was lost")
    assert stop(harness)
    assert found(run.documents.fence()).reason == REASON
    assert len(harness.cloud.training.names("Stopping")) == 2
    assert harness.emitted().count("Quorum Lost") == 1


def test_a_job_that_is_reported_as_stopping_is_not_asked_again(harness: ControlHarness) -> None:
    """At 10,000 jobs a second call of Stop has no time for those that the first one has stopped."""
    launched(harness, 2)
    harness.deliver()
    harness.plane.backends.training.stop(harness.job(0))
    harness.deliver()
    harness.cloud.calls.reset()
    stop(harness)
    assert [call["TrainingJobName"] for call in harness.cloud.calls.of("StopTrainingJob")] == [harness.job(1)]


def test_stop_ends_within_its_time_and_its_next_call_does_the_rest(harness: ControlHarness) -> None:
    launched(harness, 40)
    harness.deliver()
    harness.cloud.calls.inject(Fault("StopTrainingJob", delay_seconds=10, count=None))
    with pytest.raises(OutOfTimeError):
        stop(harness, seconds=100)
    assert 0 < len(harness.cloud.training.names("Stopping")) < 40
    harness.deliver()
    assert stop(harness)
    assert harness.cloud.training.names("InProgress") == []


def test_a_foreign_job_is_not_stopped(harness: ControlHarness) -> None:
    launched(harness, 1, "other")
    run = harness.plan()
    create_job(harness, harness.job(), Tags=[])
    harness.cloud.calls.inject(throttle("ListTags"))
    with pytest.raises(ClientError):
        harness.arm()  # The record is written; whose job it is, this call did not learn.
    raise_fence_and_stop(harness.plane, run, CANCELLED, budget())
    verify_stopped(run, budget(300))
    assert harness.cloud.training.names("InProgress") == ["muster-other-r0-a1", harness.job()]


def test_one_replica_that_cannot_be_stopped_keeps_no_other(harness: ControlHarness) -> None:
    run, first = launched(harness, 3), harness.job(0)
    harness.cloud.calls.inject(
        throttle("StopTrainingJob", when=lambda call: call.parameters["TrainingJobName"] == first)
    )
    with pytest.raises(ClientError, match="ThrottlingException"):
        raise_fence_and_stop(harness.plane, run, CANCELLED, budget())
    assert harness.cloud.training.names("Stopping") == [harness.job(1), harness.job(2)]
    # The call is made again, and completes what was missed.
    raise_fence_and_stop(harness.plane, run, CANCELLED, budget())
    assert harness.cloud.training.names("InProgress") == []


def test_one_empty_look_proves_nothing(harness: ControlHarness) -> None:
    """A listing lags behind a creation: the job appears in the second look, and is stopped."""
    run = launched(harness)
    harness.cloud.training.list_lag_seconds = 3
    verify_stopped(run, budget(300))
    assert harness.cloud.training.names("Stopped") == [harness.job()]


def test_while_the_records_show_jobs_that_stop_sagemaker_is_not_asked(harness: ControlHarness) -> None:
    """ListTrainingJobs: an account has about two calls a second, and a listing of 1,000 jobs takes ten."""
    run = launched(harness, 150)
    harness.deliver()
    raise_fence_and_stop(harness.plane, run, CANCELLED, budget())
    harness.cloud.calls.reset()
    verify_stopped(run, budget(300))
    seconds, counts = harness.cloud.clock.monotonic(), harness.cloud.calls.counts()
    assert 120 <= seconds < 200
    assert counts["ListTrainingJobs"] / seconds < 0.2
    assert counts["ListTags"] == 0


# --- timers ---------------------------------------------------------------------------------------


LIMITS: dict[str, Any] = {"replicas": 3, "launch_gate": {"replicas": 2, "within_seconds": 60}, "deadline_seconds": 90}


def launch_two(harness: ControlHarness) -> ActiveRun:
    """A run of three replicas: rank 0 trains, rank 1 waits for an instance, and rank 2 has no record."""
    run = harness.plan(**LIMITS)
    harness.arm(0)
    harness.cloud.training.train(harness.job(0))
    harness.deliver()
    harness.arm(1)
    return run


def test_a_gate_counts_replicas_that_train_or_have_succeeded_and_none_that_is_lost(harness: ControlHarness) -> None:
    run = launch_two(harness)
    complete(harness)
    # The event of this was lost.
    harness.cloud.training.train(harness.job(1))
    assert fire(harness.plane, run, Timer.LAUNCH_GATE, budget()) is Fired.PASSED
    assert run.documents.fence() is None
    assert fire(harness.plane, harness.plan("ungated"), Timer.LAUNCH_GATE, budget()) is Fired.PASSED
    fail(harness, rank=1)
    assert fire(harness.plane, run, Timer.LAUNCH_GATE, budget()) is Fired.STOPPED


def test_a_gate_is_answered_once_it_is_certain_and_in_time(harness: ControlHarness) -> None:
    """Of many replicas that wait, no call could look at each: an account may look at about ten a second."""
    calls, looks = harness.cloud.calls, list[int]()
    many = [launched(harness, 40, f"gated{n}", launch_gate={"replicas": n, "within_seconds": 60}) for n in (40, 1)]
    of_last = harness.job(run="gated1").removesuffix("0-a1")
    slow = Fault("DescribeTrainingJob", delay_seconds=20, count=None)
    slow.when = lambda call: call.parameters["TrainingJobName"].startswith(of_last)
    calls.inject(slow)
    fence = Fault(
        "PutObject",
        action=lambda: looks.append(calls.counts()["DescribeTrainingJob"]),
        when=lambda call: call.parameters["Key"].endswith("/stopping.json"),
        count=None,
    )
    calls.inject(fence)
    for run in many:
        calls.log.clear()
        with suppress(OutOfTimeError):
            fire(harness.plane, run, Timer.LAUNCH_GATE, budget(600))
    assert looks[0] < 20
    assert looks[1] < 40


def test_a_look_that_fails_stops_no_run_and_hides_no_answer(harness: ControlHarness) -> None:
    """One of three replicas trains, which only its job says; the job of another one cannot be looked at."""
    for needed in (1, 2, 3):
        name = f"gated{needed}"
        run = launched(harness, 3, name, launch_gate={"replicas": needed, "within_seconds": 60})
        harness.cloud.training.train(harness.job(0, run=name))
        unseen = harness.job(1, run=name)
        fails = Fault("DescribeTrainingJob", AwsError("AccessDeniedException", "no", 400), count=None)
        fails.when = lambda call, unseen=unseen: call.parameters["TrainingJobName"] == unseen  # type: ignore[misc]
        harness.cloud.calls.inject(fails)
        if needed == 1:
            assert fire(harness.plane, run, Timer.LAUNCH_GATE, budget()) is Fired.PASSED
        else:  # also to stop a job is to look at it
            with pytest.raises(ClientError, match="AccessDenied"):
                fire(harness.plane, run, Timer.LAUNCH_GATE, budget())
        assert (run.documents.fence() is not None) == (needed == 3)


def test_a_gate_counts_no_job_of_another(harness: ControlHarness) -> None:
    launched(harness, 1, "other")
    run = harness.plan(launch_gate={"replicas": 1, "within_seconds": 60})
    create_job(harness, harness.job(), Tags=[])
    harness.cloud.calls.inject(throttle("ListTags"))
    with pytest.raises(ClientError):
        harness.arm()
    harness.cloud.training.train(harness.job())
    assert fire(harness.plane, run, Timer.LAUNCH_GATE, budget()) is Fired.STOPPED


def test_a_timer_raises_the_fence_and_what_its_first_call_does_not_stop_the_next_one_does(row: Row) -> None:
    too_few = "launch gate: only 1 of the required 2 replicas were seen training after 60 s"
    late = "deadline: the run had not ended 90 s after its launch"
    for timer, cause, reason in (
        (Timer.LAUNCH_GATE, FenceCause.LAUNCH_GATE, too_few),
        (Timer.DEADLINE, FenceCause.DEADLINE, late),
    ):
        with row(timer) as harness:
            run = launch_two(harness)
            harness.cloud.calls.inject(throttle("StopTrainingJob", 2))
            with pytest.raises(ClientError, match="ThrottlingException"):
                fire(harness.plane, run, timer, budget())
            fence = found(run.documents.fence())
            assert (fence.verdict, fence.cause, fence.reason) == (Verdict.FAILED, cause, reason)
            assert fire(harness.plane, run, timer, budget()) is Fired.STOPPED
            assert harness.cloud.training.names("Stopping") == [harness.job(0), harness.job(1)]
            assert run.documents.fence() == fence


def test_a_timer_of_a_run_that_stops_for_another_cause_is_over_or_never_was_does_nothing(
    harness: ControlHarness,
) -> None:
    stopping, over = launch_two(harness), harness.plan("over")
    stopping.documents.raise_fence(QUORUM_LOST.model_copy(update={"reason": "deadline: no"}))
    result = Result(run="over", verdict=Verdict.SUCCEEDED, reason="", settled_at="t", replicas=(), reruns=0)
    over.documents.store.create(over.documents.layout.result, result.to_json())
    assert [fire(harness.plane, run, Timer.DEADLINE, budget()) for run in (stopping, over, None)] == [Fired.OVER] * 3
    assert harness.cloud.training.names("InProgress") == [harness.job(0), harness.job(1)]
    assert over.documents.fence() is None
