"""Stop: the fence, then every job, then a check that none is left."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from muster.contract.errors import DocumentError
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.result import Verdict
from muster.control.active_run import ActiveRun
from muster.control.runtime.parallel import OutOfTimeError, in_parallel
from muster.control.stop import StillRunningError, StopRequest, raise_fence_and_stop, stop_run, verify_stopped
from tests.memory import Fault, lost_answer, throttle
from tests.memory.harness import RUN, ControlHarness, budget

FENCE = Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="cancelled", at="t")


def stop(harness: ControlHarness, reason: str = "replica 0 was lost") -> bool:
    return stop_run(harness.plane, StopRequest(run=RUN, reason=reason), budget())


def launched(harness: ControlHarness, replicas: int = 2) -> ActiveRun:
    run = harness.plan(replicas=replicas)
    for rank in range(replicas):
        harness.arm(rank)
    return run


# --- the fence and the jobs -----------------------------------------------------------------------


def test_a_run_that_has_lost_its_quorum_is_fenced_and_its_jobs_are_stopped(harness: ControlHarness) -> None:
    run = launched(harness)
    stop(harness)
    fence = run.documents.fence()
    assert fence is not None
    assert (fence.verdict, fence.cause, fence.reason) == (Verdict.FAILED, FenceCause.QUORUM_LOST, "replica 0 was lost")
    assert harness.cloud.training.names("Stopping") == [harness.job(0), harness.job(1)]
    [event] = harness.cloud.events.of("Quorum Lost")
    assert (event["reason"], event["at"]) == ("replica 0 was lost", fence.at)


def test_each_lost_replica_asks_and_the_first_is_announced(harness: ControlHarness) -> None:
    run = launched(harness)
    stop(harness)
    harness.cloud.clock.advance(1)
    stop(harness, "replica 1 was lost")
    fence = run.documents.fence()
    assert fence is not None
    assert fence.reason == "replica 0 was lost"
    assert harness.emitted().count("Quorum Lost") == 1


def test_a_run_that_is_stopping_for_another_cause_is_left_to_the_call_that_stops_it(harness: ControlHarness) -> None:
    run = launched(harness)
    run.documents.raise_fence(FENCE)
    assert not stop(harness)
    assert run.documents.fence() == FENCE
    assert "Quorum Lost" not in harness.emitted()
    assert harness.cloud.calls.counts()["StopTrainingJob"] == 0


def test_of_200_replicas_that_are_lost_in_the_same_second_one_call_stops_the_run(harness: ControlHarness) -> None:
    run = harness.plan(replicas=201)
    for rank in range(201):
        harness.arm(rank)
    harness.deliver()
    for rank in range(200):
        harness.cloud.training.fail(harness.job(rank), "AlgorithmError: ExitCode 1")
    harness.deliver()
    answers = [harness.answer(rank) for rank in range(200)]
    assert {answer["next"] for answer in answers if answer} == {"stop"}
    harness.cloud.calls.reset()
    swept = [stop(harness, answer["reason"]) for answer in answers if answer]
    assert (len(swept), swept.count(True)) == (200, 1)
    assert harness.cloud.training.names("Stopping") == [harness.job(200)]
    reads = [call for call in harness.cloud.calls.of("GetObject") if call["Key"].startswith(f"control/{RUN}/replicas/")]
    assert len(reads) == run.plan.spec.replicas
    assert harness.emitted().count("Quorum Lost") == 1


def test_the_retry_of_the_call_that_raised_the_fence_stops_the_jobs(harness: ControlHarness) -> None:
    launched(harness)
    harness.cloud.calls.inject(Fault("StopTrainingJob", KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        stop(harness)
    harness.cloud.clock.advance(1)
    assert not stop(harness, "replica 1 was lost")
    assert stop(harness)
    assert len(harness.cloud.training.names("Stopping")) == 2
    assert harness.emitted().count("Quorum Lost") == 1


def test_a_fence_whose_write_was_not_answered_is_the_callers_own() -> None:
    with ControlHarness(tries=6).installed() as harness:
        launched(harness)
        harness.cloud.calls.inject(lost_answer("PutObject"))
        assert stop(harness)
        assert len(harness.cloud.training.names("Stopping")) == 2
        assert harness.emitted().count("Quorum Lost") == 1


def test_a_job_that_is_reported_as_stopping_is_not_asked_again(harness: ControlHarness) -> None:
    """At 10,000 jobs a second call of Stop has no time for those that the first one has stopped."""
    launched(harness)
    harness.deliver()
    harness.plane.jobs.stop(harness.job(0))
    harness.deliver()
    harness.cloud.calls.reset()
    stop(harness)
    assert [call["TrainingJobName"] for call in harness.cloud.calls.of("StopTrainingJob")] == [harness.job(1)]


def test_stop_ends_within_its_time_and_its_next_call_does_the_rest(harness: ControlHarness) -> None:
    launched(harness, 40)
    harness.deliver()
    harness.cloud.calls.inject(Fault("StopTrainingJob", delay_seconds=10, count=None))
    with pytest.raises(OutOfTimeError):
        stop_run(harness.plane, StopRequest(run=RUN, reason="why"), budget(100))
    asked = len(harness.cloud.training.names("Stopping"))
    assert 0 < asked < 40
    harness.deliver()
    assert stop(harness, "why")
    assert harness.cloud.training.names("InProgress") == []


def test_a_long_cause_is_cut(harness: ControlHarness) -> None:
    assert len(StopRequest.model_validate({"run": RUN, "reason": "x" * 32_768}).reason) == 1_024


def test_the_fence_is_up_before_any_job_is_stopped(harness: ControlHarness) -> None:
    run = launched(harness)
    seen: list[bool] = []
    harness.cloud.calls.inject(Fault("StopTrainingJob", action=lambda: seen.append(run.documents.fence() is not None)))
    stop(harness)
    assert seen == [True]


def test_replicas_without_a_record_or_with_a_decision_are_left(harness: ControlHarness) -> None:
    run = harness.plan(replicas=3)
    for rank in range(2):
        harness.arm(rank)
    harness.cloud.training.complete(harness.job(0))
    harness.deliver()
    raise_fence_and_stop(run, FENCE, budget())
    assert [call["TrainingJobName"] for call in harness.cloud.calls.of("StopTrainingJob")] == [harness.job(1)]


@pytest.mark.parametrize("noted", [False, True])
def test_a_job_is_stopped_once_it_is_proven_to_be_ours(harness: ControlHarness, noted: bool) -> None:
    """By an event that was noted; before the first one by a look at the job."""
    run = launched(harness, 1)
    if noted:
        harness.deliver()
    harness.cloud.calls.reset()
    raise_fence_and_stop(run, FENCE, budget())
    assert harness.cloud.calls.counts()["ListTags"] == (0 if noted else 1)
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_a_foreign_job_is_not_stopped(harness: ControlHarness) -> None:
    run = harness.plan()
    request = dict(launched_request(harness))
    harness.cloud.client("sagemaker").create_training_job(**{**request, "TrainingJobName": harness.job(), "Tags": []})
    harness.cloud.calls.inject(throttle("ListTags"))
    with pytest.raises(ClientError):
        harness.arm()  # The record is written; whose job it is, this call did not learn.
    raise_fence_and_stop(run, FENCE, budget())
    assert harness.cloud.training.names("InProgress") == ["muster-other-r0-a1", harness.job()]


def launched_request(harness: ControlHarness) -> dict[str, object]:
    harness.plan("other")
    harness.arm(run="other")
    return dict(harness.cloud.calls.of("CreateTrainingJob")[0])


def test_an_attempt_without_a_job_is_as_good_as_stopped(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.cloud.calls.inject(throttle("CreateTrainingJob"))
    with pytest.raises(ClientError):
        harness.arm()
    raise_fence_and_stop(run, FENCE, budget())
    assert harness.cloud.training.names() == []


def test_a_job_that_ends_in_between_is_as_good_as_stopped(harness: ControlHarness) -> None:
    run = launched(harness, 1)
    harness.cloud.calls.inject(Fault("StopTrainingJob", action=lambda: harness.cloud.training.complete(harness.job())))
    raise_fence_and_stop(run, FENCE, budget())
    assert harness.cloud.training.names("Completed") == [harness.job()]


def test_one_replica_that_cannot_be_stopped_keeps_no_other(harness: ControlHarness) -> None:
    run = launched(harness, 3)
    harness.cloud.calls.inject(
        throttle("StopTrainingJob", when=lambda call: call.parameters["TrainingJobName"] == harness.job(0))
    )
    with pytest.raises(ClientError, match="ThrottlingException"):
        raise_fence_and_stop(run, FENCE, budget())
    assert harness.cloud.training.names("Stopping") == [harness.job(1), harness.job(2)]
    # The call is made again, and completes what was missed.
    raise_fence_and_stop(run, FENCE, budget())
    assert harness.cloud.training.names("InProgress") == []


def test_a_damaged_record_keeps_no_other_from_being_stopped(harness: ControlHarness) -> None:
    run = launched(harness)
    harness.plane.store.s3.put_object(Bucket="bucket", Key=run.documents.layout.record(0), Body=b"damaged")
    with pytest.raises(DocumentError):
        raise_fence_and_stop(run, FENCE, budget())
    assert harness.cloud.training.names("Stopping") == [harness.job(1)]


def test_in_parallel_all_are_done_before_the_first_error_is_raised() -> None:
    done: list[int] = []

    def work(number: int) -> int:
        if number in {2, 5}:
            raise ValueError(number)
        done.append(number)
        return number

    with pytest.raises(ValueError, match="2"):
        in_parallel(work, range(40))
    assert sorted(done) == [number for number in range(40) if number not in {2, 5}]
    assert in_parallel(work, [9, 8, 7]) == [9, 8, 7]


def test_in_parallel_no_item_is_begun_once_the_time_is_spent(harness: ControlHarness) -> None:
    done: list[int] = []
    with pytest.raises(OutOfTimeError):
        in_parallel(done.append, range(40), budget(0))
    assert done == []
    assert in_parallel(str, [1, 2], budget(1)) == ["1", "2"]


# --- the check ------------------------------------------------------------------------------------


def test_jobs_are_waited_for_until_they_have_ended(harness: ControlHarness) -> None:
    run = launched(harness)
    raise_fence_and_stop(run, FENCE, budget())
    verify_stopped(run, budget(300))
    assert len(harness.cloud.training.names("Stopped")) == 2
    assert 120 <= harness.cloud.clock.monotonic() < 140


def test_one_empty_look_proves_nothing(harness: ControlHarness) -> None:
    """A listing lags behind a creation: the job appears in the second look, and is stopped."""
    run = launched(harness, 1)
    harness.cloud.training.list_lag_seconds = 3
    verify_stopped(run, budget(300))
    assert harness.cloud.training.names("Stopped") == [harness.job()]


def test_what_a_stop_missed_is_stopped_again(harness: ControlHarness) -> None:
    run = launched(harness)
    verify_stopped(run, budget(300))
    assert len(harness.cloud.training.names("Stopped")) == 2


def test_while_the_records_show_jobs_that_stop_sagemaker_is_not_asked(harness: ControlHarness) -> None:
    """ListTrainingJobs: an account has about two calls a second, and a listing of 1,000 jobs takes ten."""
    run = launched(harness, 150)
    harness.deliver()
    raise_fence_and_stop(run, FENCE, budget())
    harness.cloud.calls.reset()
    verify_stopped(run, budget(300))
    assert len(harness.cloud.training.names("Stopped")) == 150
    seconds = harness.cloud.clock.monotonic()
    assert 120 <= seconds < 200
    counts = harness.cloud.calls.counts()
    assert counts["ListTrainingJobs"] / seconds < 0.2
    assert counts["ListTags"] == 0


def test_a_job_that_no_record_shows_is_found_by_a_listing_before_the_others_have_ended(
    harness: ControlHarness,
) -> None:
    run = launched(harness, 2)
    harness.cloud.training.stop_seconds = 600
    harness.deliver()
    run.backends.training.stop(harness.job(0))
    verify = Fault("ListTrainingJobs", skip=3, action=lambda: ended.append(harness.cloud.clock.monotonic()))
    ended: list[float] = []
    harness.cloud.calls.inject(verify)
    with pytest.raises(StillRunningError):
        verify_stopped(run, budget(100))
    assert harness.cloud.training.names("Stopping") == [harness.job(0), harness.job(1)]
    assert ended[0] <= 70


def test_minutes_of_throttling_leave_no_job_behind(harness: ControlHarness) -> None:
    run = launched(harness)
    harness.deliver()
    run.backends.patience = budget(800)
    for operation in ("StopTrainingJob", "ListTrainingJobs"):
        harness.cloud.calls.inject(throttle(operation, 20))
    raise_fence_and_stop(run, FENCE, budget())
    verify_stopped(run, budget(800))
    assert harness.cloud.training.names("Stopped") == [harness.job(0), harness.job(1)]


def test_jobs_that_outlast_the_budget_are_an_error(harness: ControlHarness) -> None:
    run = launched(harness)
    harness.cloud.training.stop_seconds = 3_600
    with pytest.raises(StillRunningError, match="2 jobs of one are still active"):
        verify_stopped(run, budget(60))
    assert 60 <= harness.cloud.clock.monotonic() < 70


def test_jobs_of_others_under_our_names_are_not_waited_for(harness: ControlHarness) -> None:
    run = harness.plan()
    request = launched_request(harness)
    harness.cloud.client("sagemaker").create_training_job(**{**request, "TrainingJobName": harness.job(), "Tags": []})
    verify_stopped(run, budget(300))
    assert len(harness.cloud.training.names("InProgress")) == 2
