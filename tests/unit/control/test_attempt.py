"""Attempt: token first, job second, look third; called again, it repairs what was lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.result import Verdict
from muster.control.active_run import ActiveRun
from muster.control.attempt import Launch
from muster.control.cost_ceiling import reached_ceiling
from tests.memory import AwsError, Fault, lost_answer, server_error, throttle
from tests.memory.harness import RUN, ControlHarness

FENCE = Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="cancelled", at="t")
CONTROL = f"control/{RUN}/"


class FunctionEndedError(BaseException):
    """The function's time is over, or its machine is gone: no code of it runs any more."""


def refusal(code: str, message: str = "no", **fields: Any) -> Fault:
    return Fault("CreateTrainingJob", AwsError(code, message), **fields)


def raise_fence(run: ActiveRun) -> None:
    run.documents.raise_fence(FENCE)


def jobs_created(harness: ControlHarness) -> int:
    return harness.cloud.calls.counts()["CreateTrainingJob"]


# --- a launch -------------------------------------------------------------------------------------


def test_a_first_call_writes_the_record_and_creates_the_job(harness: ControlHarness) -> None:
    run = harness.plan()
    request = harness.request()
    assert harness.attempt(request) is Launch.CREATED
    record = harness.record()
    assert (record.token, record.armed_at, record.decision) == (request.token, request.armed_at, None)
    assert (record.current.job, record.current.instance_type) == ("muster-one-r0-a1", "ml.m5.large")
    assert record.current.launched_at == "2026-01-01T00:00:00.000Z"
    [sent] = harness.cloud.calls.of("CreateTrainingJob")
    assert run.owns({tag["Key"]: tag["Value"] for tag in sent["Tags"]}, 0, 1)
    assert harness.emitted() == ["Replica Launched"]
    assert harness.answer() is None


def test_the_token_is_in_the_record_before_the_job_exists(harness: ControlHarness) -> None:
    harness.plan()
    seen: list[str] = []
    harness.cloud.calls.inject(Fault("CreateTrainingJob", action=lambda: seen.append(harness.record().token)))
    request = harness.request()
    harness.attempt(request)
    assert seen == [request.token]


def test_a_second_call_adopts_the_job_and_renews_the_token(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.clock.advance(21_600)
    request = harness.request(retry=0)
    assert harness.attempt(request) is Launch.ADOPTED
    assert harness.record().token == request.token
    assert (jobs_created(harness), len(harness.record().attempts)) == (1, 1)
    assert harness.emitted() == ["Replica Launched"]


@pytest.mark.parametrize("operation", ["CreateTrainingJob", "PutEvents"])
@pytest.mark.parametrize("meanwhile", ["trains", "ends", "its end is recorded"])
def test_a_launch_is_announced_although_the_call_that_created_the_job_could_not(
    harness: ControlHarness, operation: str, meanwhile: str
) -> None:
    harness.plan()
    harness.cloud.calls.inject(Fault(operation, FunctionEndedError(), after_effect=operation == "CreateTrainingJob"))
    with pytest.raises(FunctionEndedError):
        harness.arm()
    if meanwhile != "trains":
        harness.cloud.training.complete(harness.job())
    if meanwhile == "its end is recorded":
        harness.deliver()
    assert harness.emitted() == []
    assert harness.arm() is (Launch.ADOPTED if meanwhile == "trains" else Launch.CONCLUDED)
    assert [event["job"] for event in harness.cloud.events.of("Replica Launched")] == [harness.job()]


@pytest.mark.parametrize("fault", [Fault("CreateTrainingJob", FunctionEndedError()), server_error("CreateTrainingJob")])
def test_a_call_that_ended_before_the_job_is_completed_by_the_next(harness: ControlHarness, fault: Fault) -> None:
    harness.plan()
    harness.cloud.calls.inject(fault)
    with pytest.raises((ClientError, FunctionEndedError)):
        harness.arm()
    assert harness.cloud.training.names() == []
    assert harness.arm() is Launch.CREATED


@pytest.mark.parametrize(
    "fault",
    [lost_answer("CreateTrainingJob"), Fault("CreateTrainingJob", FunctionEndedError(), after_effect=True)],
)
def test_a_job_whose_creation_was_not_answered_is_adopted_by_the_next_call(
    harness: ControlHarness, fault: Fault
) -> None:
    harness.plan()
    harness.cloud.calls.inject(fault)
    with pytest.raises((ClientError, FunctionEndedError)):
        harness.arm()
    assert harness.arm() is Launch.ADOPTED
    assert jobs_created(harness) == 1


def test_a_throttled_creation_goes_back_to_the_workflow_and_spends_no_budget(harness: ControlHarness) -> None:
    harness.plan()
    harness.cloud.calls.inject(throttle("CreateTrainingJob"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        harness.arm()
    assert harness.record().decision is None
    assert harness.arm() is Launch.CREATED
    assert len(harness.record().attempts) == 1


def test_a_client_that_tries_again_after_a_lost_answer_adopts_its_own_job() -> None:
    with ControlHarness(tries=6).installed() as harness:
        harness.plan()
        harness.cloud.calls.inject(lost_answer("CreateTrainingJob"))
        assert harness.arm() is Launch.ADOPTED
        assert jobs_created(harness) == 2
        assert harness.emitted() == ["Replica Launched"]


def test_a_job_whose_creation_was_not_answered_is_found_although_the_next_try_is_refused() -> None:
    """The first try made the job; the second one meets the quota that the job has filled."""
    with ControlHarness(tries=6).installed() as harness:
        harness.plan()
        harness.cloud.calls.inject(lost_answer("CreateTrainingJob"), refusal("ResourceLimitExceeded"))
        assert harness.arm() is Launch.ADOPTED
        assert harness.record().decision is None
        assert harness.cloud.training.names("InProgress") == [harness.job()]


def test_a_name_that_is_in_use_and_cannot_be_found_is_tried_again(harness: ControlHarness) -> None:
    harness.plan()
    harness.cloud.calls.inject(refusal("ResourceInUse"))
    with pytest.raises(ConnectionError, match="muster-one-r0-a1 is in use, but a look at it does not find it"):
        harness.arm()
    assert harness.arm() is Launch.CREATED


# --- the end, found by the call -------------------------------------------------------------------


def test_a_job_that_has_ended_already_completes_the_token(harness: ControlHarness) -> None:
    """Every event of it was lost."""
    harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    assert harness.arm() is Launch.CONCLUDED
    answer = harness.answer()
    assert answer is not None
    assert (answer["next"], answer["attempt"]) == ("done", 1)
    assert harness.record().current.artifacts == "s3://bucket/output/one/muster-one-r0-a1/output/model.tar.gz"


def test_an_end_that_was_decided_is_announced_to_the_new_token(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), "InternalServerError: again")
    harness.cloud.workflow.expire(harness.record().token)
    harness.deliver()
    assert harness.answer() is None
    request = harness.request()
    assert harness.attempt(request) is Launch.CONCLUDED
    assert harness.output(request.token) == harness.decided()
    assert harness.emitted().count("Replica Rerun") == 1


def test_a_record_keeps_what_a_newer_version_has_added_until_its_replica_ends(harness: ControlHarness) -> None:
    run = harness.plan()
    assert harness.arm() is Launch.CREATED
    key = run.documents.layout.record(0)
    found = harness.plane.store.get(key)
    assert found is not None
    fields = json.loads(found.body) | {"added_later": {"by": "a newer version"}}
    harness.plane.store.replace(key, json.dumps(fields).encode(), found.etag)
    harness.cloud.training.fail(harness.job(), "InternalServerError: again")
    harness.deliver()
    assert harness.arm(attempt=2) is Launch.CREATED
    harness.cloud.training.complete(harness.job(attempt=2))
    harness.deliver()
    found = harness.plane.store.get(key)
    assert found is not None
    after = json.loads(found.body)
    assert (len(after["attempts"]), after["decision"]["next"]) == (2, "done")
    assert after["added_later"] == fields["added_later"]


def test_a_rerun_is_launched_with_the_next_fallback_type_after_a_shortage(harness: ControlHarness) -> None:
    harness.plan(fallback_instance_types=["ml.g5.4xlarge"])
    harness.cloud.calls.inject(refusal("ResourceLimitExceeded"))
    assert harness.arm() is Launch.CONCLUDED
    assert harness.arm(attempt=2) is Launch.CREATED
    first, second = harness.record().attempts
    assert (first.instance_type, second.instance_type) == ("ml.m5.large", "ml.g5.4xlarge")
    assert harness.cloud.calls.of("CreateTrainingJob")[-1]["ResourceConfig"]["InstanceType"] == "ml.g5.4xlarge"


def test_the_type_that_sagemaker_chose_is_in_the_record(harness: ControlHarness) -> None:
    preferences = [{"instance_type": name} for name in ("ml.m5.large", "ml.m5.xlarge")]
    harness.plan(instance_type=None, instance_preferences=preferences)
    harness.arm()
    assert harness.record().current.instance_type is None
    harness.cloud.training.train(harness.job(), "ml.m5.xlarge")
    harness.deliver()
    assert harness.record().current.instance_type == "ml.m5.xlarge"


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "failure_class", "follows"),
    [
        ("ResourceLimitExceeded", FailureClass.QUOTA, "rerun"),
        ("CapacityError", FailureClass.CAPACITY, "rerun"),
        ("SomethingNew", FailureClass.UNKNOWN, "rerun"),
        ("ValidationException", FailureClass.INVALID_REQUEST, "stop"),
        ("AccessDeniedException", FailureClass.INVALID_REQUEST, "stop"),
    ],
)
def test_a_refused_launch_ends_the_attempt_in_the_class_of_its_code(
    harness: ControlHarness, code: str, failure_class: FailureClass, follows: str
) -> None:
    harness.plan()
    harness.cloud.calls.inject(refusal(code, "the words of AWS"))
    assert harness.arm() is Launch.CONCLUDED
    current = harness.record().current
    assert (current.failure_class, current.secondary, current.status) == (failure_class, NOT_CREATED, "Failed")
    assert (current.reason, current.billable_seconds) == (f"{code}: the words of AWS", 0)
    answer = harness.answer()
    assert answer is not None
    assert answer["next"] == follows
    assert harness.keys(f"{CONTROL}lost/") == ([] if follows == "rerun" else ["0"])


def test_a_foreign_job_under_our_name_is_left_alone(harness: ControlHarness) -> None:
    run = harness.plan()
    request = {
        "TrainingJobName": str(run.replica(0).job_name(1)),
        "RoleArn": "arn:aws:iam::123456789012:role/other",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }
    harness.cloud.client("sagemaker").create_training_job(**request)
    assert harness.arm() is Launch.CONCLUDED
    assert harness.record().current.failure_class is FailureClass.INVALID_REQUEST
    assert "Start the run with another name." in harness.record().current.reason
    assert harness.cloud.training.names("InProgress") == ["muster-one-r0-a1"]


# --- requests that are out of date ----------------------------------------------------------------


def rerun(harness: ControlHarness) -> None:
    """Attempt 1 has ended; attempt 2 may be launched at once."""
    harness.arm()
    harness.cloud.training.fail(harness.job(), "InternalServerError: again")
    harness.deliver()


def test_a_request_for_an_earlier_attempt_is_superseded(harness: ControlHarness) -> None:
    harness.plan()
    rerun(harness)
    assert harness.arm(attempt=2) is Launch.CREATED
    request = harness.request(attempt=1)
    assert harness.attempt(request) is Launch.SUPERSEDED
    output = harness.output(request.token)
    assert output is not None
    assert (output["next"], output["attempt"], output["reason"]) == ("rerun", 2, "superseded")
    assert harness.answer() is None


def test_a_refusal_says_nothing_about_the_job_that_a_newer_request_has_created(harness: ControlHarness) -> None:
    """A redrive calls attempt while an earlier call, which the end of its execution did not end, still runs."""
    harness.plan()
    older, newer = harness.request(), harness.request()

    def redrive() -> None:
        assert harness.attempt(newer) is Launch.CREATED

    refused: list[int] = []
    harness.cloud.calls.inject(
        refusal("ResourceLimitExceeded", action=lambda: refused.append(1)),
        Fault("PutObject", action=redrive, when=lambda call: bool(refused) and "/replicas/" in call.parameters["Key"]),
    )
    assert harness.attempt(older) is Launch.SUPERSEDED
    record = harness.record()
    assert (record.token, record.decision, record.current.was_created) == (newer.token, None, True)
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    assert harness.answer() is not None


def test_an_older_request_for_the_same_attempt_does_not_take_the_token(harness: ControlHarness) -> None:
    harness.plan()
    older = harness.request()
    harness.cloud.clock.advance(5)
    newer = harness.request()
    harness.attempt(newer)
    assert harness.attempt(older) is Launch.SUPERSEDED
    assert harness.record().token == newer.token
    assert harness.output(newer.token) is None


def test_a_retry_of_a_state_has_the_later_token(harness: ControlHarness) -> None:
    harness.plan()
    first = harness.request(retry=0)
    harness.attempt(first)
    second = harness.request(entered_at=first.entered_at, retry=1)
    assert harness.attempt(second) is Launch.ADOPTED
    assert harness.record().token == second.token
    assert harness.attempt(first) is Launch.SUPERSEDED
    assert harness.record().token == second.token


def test_a_rerun_is_not_launched_before_its_delay_is_over(harness: ControlHarness) -> None:
    harness.plan(reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 100}})
    rerun(harness)
    request = harness.request(attempt=2)
    assert harness.attempt(request) is Launch.EARLY
    output = harness.output(request.token)
    assert output is not None
    assert 100 <= output["delay_seconds"] <= 125
    assert output["attempt"] == 2
    harness.cloud.clock.advance(output["delay_seconds"])
    assert harness.arm(attempt=2) is Launch.CREATED


@pytest.mark.parametrize("left", [0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
def test_a_rerun_that_becomes_due_during_the_call_is_early_or_launched_and_never_refused(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch, left: float
) -> None:
    """Time passes between any two looks at the clock."""
    harness.plan(reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 100}})
    rerun(harness)
    request = harness.request(attempt=2)
    due = harness.decided()["delay_seconds"]
    clock = harness.cloud.clock
    clock.advance(due - left)

    def later() -> datetime:
        clock.advance(1)
        return clock.now()

    monkeypatch.setattr(clock, "utc_now", later)
    assert harness.attempt(request) is (Launch.CREATED if left <= 1 else Launch.EARLY)


@pytest.mark.parametrize("attempt", [2, 3])
def test_an_attempt_that_was_not_decided_on_is_not_launched(harness: ControlHarness, attempt: int) -> None:
    """2 while attempt 1 trains; 3 when 2 was decided on."""
    harness.plan()
    harness.arm() if attempt == 2 else rerun(harness)
    with pytest.raises(LookupError, match=f"attempt {attempt} of replica 0 is not launched"):
        harness.arm(attempt=attempt)
    assert jobs_created(harness) == 1


def test_a_first_attempt_is_number_one(harness: ControlHarness) -> None:
    harness.plan()
    with pytest.raises(LookupError):
        harness.arm(attempt=2)


# --- the fence ------------------------------------------------------------------------------------


def test_a_first_launch_reads_the_fence_alone(harness: ControlHarness) -> None:
    """Before the record, between record and job, and after the job; the record is written without a read."""
    run = harness.plan()
    harness.cloud.calls.reset()
    assert harness.arm() is Launch.CREATED
    layout = run.documents.layout
    assert [call["Key"] for call in harness.cloud.calls.of("GetObject")] == [layout.fence] * 3
    written = [call["Key"] for call in harness.cloud.calls.of("PutObject")]
    assert written == [layout.record(0), layout.roll_up_shard(0)]


def test_a_workflow_that_got_an_answer_of_an_older_version_asks_for_the_decision(harness: ControlHarness) -> None:
    """After a rollback: a rerun came as an output. The workflow asks without the marker, and gets an output again."""
    harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), "InternalServerError")
    harness.deliver()
    asking = harness.request(catches_reruns=False)
    assert harness.attempt(asking) is Launch.CONCLUDED
    found = harness.cloud.workflow.answer(asking.token)
    assert found is not None
    assert (found.error, found.output) == (None, harness.decided())
    assert harness.record().catches_reruns
    assert harness.arm(attempt=2) is Launch.CREATED


def test_a_re_arm_says_how_its_workflow_gets_a_rerun(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.attempt(harness.request(catches_reruns=False))
    assert not harness.record().catches_reruns
    harness.arm()
    assert harness.record().catches_reruns


def test_a_first_call_that_comes_twice_finds_what_the_other_one_has_done(harness: ControlHarness) -> None:
    """Lambda can invoke a function twice for one call of the workflow."""
    run = harness.plan()
    request = harness.request(retry=0)
    assert harness.attempt(request) is Launch.CREATED
    assert harness.attempt(request) is Launch.ADOPTED
    assert len(harness.cloud.training.names()) == 1
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    run.documents.raise_fence(Fence(verdict=Verdict.FAILED, cause=FenceCause.QUORUM_LOST, reason="why", at="t"))
    assert harness.attempt(request) is Launch.CONCLUDED


def test_a_re_arm_reads_the_record_before_it_writes_it(harness: ControlHarness) -> None:
    """It comes hours after the launch, where a write without a read would be lost and cost a request."""
    run = harness.plan()
    harness.arm()
    harness.cloud.clock.advance(6 * 3_600)
    harness.cloud.calls.reset()
    assert harness.attempt(harness.request(retry=0)) is Launch.ADOPTED
    assert [call["Key"] for call in harness.cloud.calls.of("PutObject")] == [run.documents.layout.record(0)]


def test_nothing_is_launched_in_a_run_that_is_stopping(harness: ControlHarness) -> None:
    run = harness.plan()
    raise_fence(run)
    request = harness.request()
    assert harness.attempt(request) is Launch.REFUSED
    output = harness.output(request.token)
    assert output is not None
    assert (output["next"], output["reason"]) == ("fail", "the run is stopping")
    assert run.documents.record(0).record is None
    assert jobs_created(harness) == 0


@pytest.mark.parametrize("delay", [0, 1_000])
def test_a_rerun_of_a_run_that_is_stopping_is_refused_whatever_is_left_of_its_delay(
    harness: ControlHarness, delay: int
) -> None:
    """Long delays are served in pieces for this: no run outlasts the delay of its most patient replica."""
    run = harness.plan(reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": delay}})
    rerun(harness)
    raise_fence(run)
    request = harness.request(attempt=2)
    assert harness.attempt(request) is Launch.REFUSED
    output = harness.output(request.token)
    assert output is not None
    assert (output["next"], output["delay_seconds"]) == ("fail", 0)
    assert jobs_created(harness) == 1


def test_an_attempt_without_a_job_ends_with_the_run(harness: ControlHarness) -> None:
    """The call before ended before it created the job."""
    run = harness.plan()
    harness.cloud.calls.inject(Fault("CreateTrainingJob", FunctionEndedError()))
    with pytest.raises(FunctionEndedError):
        harness.arm()
    raise_fence(run)
    assert harness.arm() is Launch.CONCLUDED
    current = harness.record().current
    assert (current.failure_class, current.status) == (FailureClass.STOPPED_BY_MUSTER, "Stopped")
    answer = harness.answer()
    assert answer is not None
    assert answer["next"] == "fail"
    assert jobs_created(harness) == 1


def test_a_fence_that_is_raised_while_the_job_is_created_stops_it(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.cloud.calls.inject(Fault("CreateTrainingJob", action=lambda: raise_fence(run)))
    assert harness.arm() is Launch.CREATED
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_a_fence_stops_a_job_whose_creation_was_not_answered(harness: ControlHarness) -> None:
    run = harness.plan()
    lost = lost_answer("CreateTrainingJob")
    lost.action = lambda: raise_fence(run)
    harness.cloud.calls.inject(lost)
    with pytest.raises(ClientError):
        harness.arm()
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_a_fence_stops_an_adopted_job_that_stop_did_not_see(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.cloud.calls.inject(Fault("CreateTrainingJob", FunctionEndedError(), after_effect=True))
    with pytest.raises(FunctionEndedError):
        harness.arm()
    raise_fence(run)
    assert harness.arm() is Launch.ADOPTED
    assert harness.cloud.training.names("Stopping") == [harness.job()]


# --- the cost ceiling -----------------------------------------------------------------------------


def test_a_run_with_a_ceiling_records_what_it_has_launched_and_what_that_has_cost(harness: ControlHarness) -> None:
    run = harness.plan(cost_ceiling_usd=100.0)
    harness.arm()
    assert harness.keys(f"{CONTROL}spent/") == ["0-1-on-ml.m5.large"]
    harness.cloud.training.train(harness.job())
    harness.cloud.clock.advance(3_600)
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    assert harness.record().current.billable_seconds == 3_600
    assert harness.keys(f"{CONTROL}spent/")[0].startswith("0-1-cost-")
    assert reached_ceiling(run) is None


def test_a_mark_that_a_call_did_not_write_is_written_by_the_next(harness: ControlHarness) -> None:
    harness.plan(cost_ceiling_usd=100.0)
    harness.cloud.calls.inject(Fault("CreateTrainingJob", FunctionEndedError(), after_effect=True))
    with pytest.raises(FunctionEndedError):
        harness.arm()
    assert harness.keys(f"{CONTROL}spent/") == []
    assert harness.arm() is Launch.ADOPTED
    assert harness.keys(f"{CONTROL}spent/") == ["0-1-on-ml.m5.large"]


def test_a_rerun_is_not_launched_once_the_others_have_spent_what_was_left(harness: ControlHarness) -> None:
    run = harness.plan(cost_ceiling_usd=1.0)
    rerun(harness)
    run.documents.store.create(f"{CONTROL}spent/1-1-cost-2000000", b"{}")
    request = harness.request(attempt=2)
    assert harness.attempt(request) is Launch.CONCLUDED
    current = harness.record().current
    assert (current.attempt, current.failure_class, current.secondary) == (2, FailureClass.UNKNOWN, NOT_CREATED)
    assert current.reason == "the cost ceiling of $1.00 is reached (about $2.00 spent, at prices of us-west-2)"
    output = harness.output(request.token)
    assert output is not None
    assert output["next"] == "stop"
    assert jobs_created(harness) == 1


def test_a_first_attempt_is_launched_whatever_was_spent(harness: ControlHarness) -> None:
    run = harness.plan(cost_ceiling_usd=1.0)
    run.documents.store.create(f"{CONTROL}spent/1-1-cost-2000000", b"{}")
    assert harness.arm() is Launch.CREATED


@pytest.fixture
def retrying() -> Iterator[ControlHarness]:
    """S3 carries out a write, its answer is lost, and the client's next try is refused because of the first."""
    with ControlHarness(tries=3).installed() as harness:
        harness.plan()
        yield harness


def test_a_launch_is_announced_although_the_answer_to_its_record_is_lost(retrying: ControlHarness) -> None:
    retrying.cloud.calls.inject(lost_answer("PutObject"))
    retrying.attempt(retrying.request(retry=0))
    assert retrying.emitted() == ["Replica Launched"]
    retrying.cloud.training.fail(retrying.job(), "InternalServerError")
    retrying.deliver()
    retrying.cloud.clock.sleep(retrying.decided()["delay_seconds"])
    retrying.cloud.calls.inject(lost_answer("PutObject"))
    retrying.attempt(retrying.request(attempt=2, retry=0))
    assert retrying.emitted() == ["Replica Launched", "Replica Rerun", "Replica Launched"]
    assert jobs_created(retrying) == 2


def test_a_rerun_is_announced_although_the_answer_to_its_record_is_lost(retrying: ControlHarness) -> None:
    retrying.attempt(retrying.request(retry=0))
    retrying.cloud.training.fail(retrying.job(), "InternalServerError")
    event = retrying.last_event(retrying.job())
    retrying.cloud.calls.inject(lost_answer("PutObject"))
    retrying.react(event)
    assert retrying.emitted() == ["Replica Launched", "Replica Rerun"]
    retrying.react(event)
    assert retrying.emitted() == ["Replica Launched", "Replica Rerun"]


def test_a_job_that_a_rearm_creates_is_announced(harness: ControlHarness) -> None:
    harness.plan()
    harness.cloud.calls.inject(server_error("CreateTrainingJob", None))
    with pytest.raises(ClientError):
        harness.attempt(harness.request(retry=0))
    harness.cloud.calls.reset()
    assert harness.attempt(harness.request(retry=0)) is Launch.CREATED
    assert harness.emitted() == ["Replica Launched"]
