"""Attempt: token first, job second, look third; called again, it repairs what was lost."""

import json
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED
from muster.contract.run.result import Verdict
from muster.contract.spec.stack_defaults import StackDefaults
from muster.control.attempt_request import AttemptRequest, Launch
from tests.memory import AwsError, Fault, lost_answer, server_error
from tests.memory.harness import RUN, ControlHarness
from tests.support.control_steps import (
    AGAIN,
    CANCELLED,
    FunctionEndedError,
    Row,
    complete,
    create_job,
    fail,
    finished,
    found,
    launched,
)

SPENT = f"control/{RUN}/spent/"


def refusal(code: str, message: str = "no", **fields: Any) -> Fault:
    return Fault("CreateTrainingJob", AwsError(code, message), **fields)


def unfinished(operation: str = "CreateTrainingJob", *, after_effect: bool = True) -> Fault:
    """The function ends at a call."""
    return Fault(operation, FunctionEndedError(), after_effect=after_effect)


def jobs_created(harness: ControlHarness) -> int:
    return harness.cloud.calls.counts()["CreateTrainingJob"]


def answered(harness: ControlHarness, request: AttemptRequest, launch: Launch) -> dict[str, Any]:
    """What the workflow gets at once for a request that ends as `launch`."""
    assert harness.attempt(request) is launch
    return found(harness.output(request.token))


def waiting(seconds: int, **fields: Any) -> dict[str, Any]:
    """A spec whose first rerun waits."""
    return {"reruns": {"infrastructure": {"max_reruns": 1, "delay_seconds": seconds}}, **fields}


def fail_first(harness: ControlHarness, **fields: Any) -> None:
    """Attempt 1 has ended; attempt 2 may be launched, at once unless it waits."""
    launched(harness, **fields)
    fail(harness, AGAIN)


# --- a launch -------------------------------------------------------------------------------------


def test_the_token_is_in_the_record_before_the_job_exists(harness: ControlHarness) -> None:
    layout = harness.plan().documents.layout
    harness.cloud.calls.log.clear()
    assert harness.arm() is Launch.CREATED
    made = [call.parameters.get("Key", call.operation) for call in harness.cloud.calls.log]
    before = [layout.record(0), layout.fence, layout.record(0), *[layout.roll_up_shard(0)] * 2, layout.fence]
    assert made == [*before, "AssumeRole", "CreateTrainingJob", layout.fence, "PutEvents"]


def test_a_launch_is_announced_although_the_call_that_created_the_job_could_not(row: Row) -> None:
    for meanwhile in ("trains", "ends", "its end is recorded"):
        for operation in ("CreateTrainingJob", "PutEvents"):
            with row(f"{operation}, {meanwhile}") as harness:
                harness.plan()
                harness.cloud.calls.inject(unfinished(operation, after_effect=operation == "CreateTrainingJob"))
                with pytest.raises(FunctionEndedError):
                    harness.arm()
                if meanwhile != "trains":
                    harness.cloud.training.complete(harness.job())
                if meanwhile == "its end is recorded":
                    harness.deliver()
                assert harness.emitted() == []
                assert harness.arm() is (Launch.ADOPTED if meanwhile == "trains" else Launch.CONCLUDED)
                assert [event["job"] for event in harness.cloud.events.of("Replica Launched")] == [harness.job()]


def test_a_job_whose_creation_was_not_answered_is_found_although_the_next_try_is_refused(row: Row) -> None:
    """The client tries again: it meets the name of its own job, or the quota that the job has filled."""
    for name, refusals in (("the name is taken", []), ("the quota is reached", [refusal("ResourceLimitExceeded")])):
        with row(name, tries=6) as harness:
            harness.plan()
            harness.cloud.calls.inject(lost_answer("CreateTrainingJob"), *refusals)
            assert harness.arm() is Launch.ADOPTED
            assert (harness.record().decision, jobs_created(harness)) == (None, 2)
            assert harness.cloud.training.names("InProgress") == [harness.job()]
            assert harness.emitted() == ["Replica Launched"]


def test_a_creation_whose_name_is_in_use_and_cannot_be_found_goes_back_to_the_workflow_and_spends_no_budget(
    harness: ControlHarness,
) -> None:
    harness.plan()
    harness.cloud.calls.inject(refusal("ResourceInUse"))
    with pytest.raises(ConnectionError, match="muster-one-r0-a1"):
        harness.arm()
    assert harness.record().decision is None
    assert (harness.arm(), len(harness.record().attempts)) == (Launch.CREATED, 1)


def test_a_job_that_a_person_deleted_after_its_lost_end_is_not_created_again(harness: ControlHarness) -> None:
    """DeleteTrainingJob deletes a job that has ended, and its name can be given again."""
    launched(harness)
    job = harness.job()
    harness.cloud.training.advance(job)
    harness.deliver()
    harness.cloud.training.complete(job)
    harness.cloud.notifications.drain()
    harness.cloud.training.delete(job)
    assert (harness.arm(), jobs_created(harness)) == (Launch.CONCLUDED, 1)
    record = harness.record()
    assert record.current.failure_class is FailureClass.UNKNOWN
    assert "was deleted" in record.current.reason
    assert (found(record.decision).next, found(record.decision).attempt) == ("rerun", 2)


def test_a_look_that_lags_behind_an_event_does_not_end_its_attempt(harness: ControlHarness) -> None:
    launched(harness)
    harness.cloud.training.advance(harness.job())
    harness.deliver()
    harness.cloud.calls.inject(
        Fault("DescribeTrainingJob", AwsError("ValidationException", "Requested resource not found."))
    )
    assert (harness.arm(), harness.record().decision) == (Launch.ADOPTED, None)


def test_a_job_that_a_rearm_creates_is_announced(harness: ControlHarness) -> None:
    harness.plan()
    harness.cloud.calls.inject(server_error("CreateTrainingJob"))
    with pytest.raises(ClientError):
        harness.attempt(harness.request(retry=0))
    assert harness.attempt(harness.request(retry=0)) is Launch.CREATED
    assert harness.emitted() == ["Replica Launched"]


def test_a_first_call_that_comes_twice_finds_what_the_other_one_has_done(harness: ControlHarness) -> None:
    """Lambda can invoke a function twice for one call of the workflow."""
    run = harness.plan()
    request = harness.request(retry=0)
    assert [harness.attempt(request) for _ in range(2)] == [Launch.CREATED, Launch.ADOPTED]
    assert len(harness.cloud.training.names()) == 1
    complete(harness)
    run.documents.raise_fence(CANCELLED)
    assert harness.attempt(request) is Launch.CONCLUDED


def test_a_rerun_is_announced_although_the_answer_to_its_record_is_lost() -> None:
    """S3 carries out a write, its answer is lost, and the client's next try is refused because of the first."""
    with ControlHarness(tries=3).installed() as harness:
        harness.plan()
        harness.cloud.calls.inject(lost_answer("PutObject"))
        harness.attempt(harness.request(retry=0))
        assert harness.emitted() == ["Replica Launched"]
        harness.cloud.training.fail(harness.job(), AGAIN)
        event = harness.last_event(harness.job())
        harness.cloud.calls.inject(lost_answer("PutObject"))
        for _ in range(2):
            harness.react(event)
            assert harness.emitted() == ["Replica Launched", "Replica Rerun"]
        harness.cloud.calls.inject(lost_answer("PutObject"))
        assert harness.attempt(harness.request(attempt=2, retry=0)) is Launch.CREATED
        assert harness.emitted() == ["Replica Launched", "Replica Rerun", "Replica Launched"]


# --- the end, found by the call -------------------------------------------------------------------


def test_a_job_that_has_ended_already_completes_the_token(harness: ControlHarness) -> None:
    """Every event of it was lost."""
    launched(harness)
    harness.cloud.training.complete(harness.job())
    answer = answered(harness, harness.request(), Launch.CONCLUDED)
    assert (answer["next"], answer["attempt"]) == ("done", 1)
    assert harness.record().current.artifacts == "s3://bucket/output/one/muster-one-r0-a1/output/model.tar.gz"


def test_a_record_keeps_what_a_newer_version_has_added_until_its_replica_ends(harness: ControlHarness) -> None:
    key, store = launched(harness).documents.layout.record(0), harness.plane.store
    before = found(store.get(key))
    added = {"added_later": {"by": "a newer version"}}
    store.replace(key, json.dumps(json.loads(before.body) | added).encode(), before.etag)
    fail(harness, AGAIN)
    assert harness.arm(attempt=2) is Launch.CREATED
    complete(harness, attempt=2)
    after = json.loads(found(store.get(key)).body)
    assert (len(after["attempts"]), after["decision"]["next"]) == (2, "done")
    assert after["added_later"] == added["added_later"]


def test_a_shortage_is_followed_by_the_next_fallback_type_at_once(harness: ControlHarness) -> None:
    harness.plan(fallback_instance_types=["ml.g5.4xlarge"])
    harness.cloud.calls.inject(refusal("ResourceLimitExceeded"))
    assert [harness.arm(attempt=number) for number in (1, 2)] == [Launch.CONCLUDED, Launch.CREATED]
    assert [one.instance_type for one in harness.record().attempts] == ["ml.m5.large", "ml.g5.4xlarge"]
    assert harness.cloud.calls.of("CreateTrainingJob")[-1]["ResourceConfig"]["InstanceType"] == "ml.g5.4xlarge"


def test_a_run_that_trains_is_rerun_as_it_was_planned_and_settled_by_the_new_functions(harness: ControlHarness) -> None:
    """A deployment replaces all functions at once, with another role and other defaults."""
    harness.deployment = replace(harness.deployment, defaults=StackDefaults(image="old:1"))
    launched(harness, 2, image=None)
    after = ControlHarness(cloud=harness.cloud)
    place = after.deployment.place.model_copy(update={"role_arn": "arn:aws:iam::123456789012:role/new"})
    defaults = StackDefaults(image="new:2", tags={"team": "new"})
    after.deployment = replace(after.deployment, place=place, defaults=defaults)
    fail(after, AGAIN)
    assert after.arm(attempt=2) is Launch.CREATED
    of_attempt = {"TrainingJobName", "Tags", "Environment", "HyperParameters"}
    requests = [
        {name: value for name, value in request.items() if name not in of_attempt}
        for request in harness.cloud.calls.of("CreateTrainingJob")
    ]
    assert requests[0] == requests[-1]
    assert requests[0]["AlgorithmSpecification"]["TrainingImage"] == "old:1"
    complete(after, attempt=2)
    complete(after, 1)
    result = finished(after).result
    assert (result.verdict, result.reruns) == (Verdict.SUCCEEDED, 1)


# --- refusals -------------------------------------------------------------------------------------


def test_a_refused_launch_ends_the_attempt_in_the_class_of_its_code(row: Row) -> None:
    for code, failure_class, follows in (
        ("CapacityError", FailureClass.CAPACITY, "rerun"),
        ("SomethingNew", FailureClass.UNKNOWN, "rerun"),
        ("AccessDeniedException", FailureClass.INVALID_REQUEST, "stop"),
    ):
        with row(code) as harness:
            harness.plan()
            harness.cloud.calls.inject(refusal(code, "the words of AWS"))
            assert answered(harness, harness.request(), Launch.CONCLUDED)["next"] == follows
            current = harness.record().current
            assert (current.failure_class, current.secondary) == (failure_class, NOT_CREATED)
            assert (current.reason, current.billable_seconds) == (f"{code}: the words of AWS", 0)


def test_a_foreign_job_under_our_name_is_left_alone(harness: ControlHarness) -> None:
    launched(harness, 1, "other")
    harness.plan()
    foreign = create_job(harness, harness.job(), Tags=[])
    assert harness.arm() is Launch.CONCLUDED
    assert harness.record().current.failure_class is FailureClass.INVALID_REQUEST
    assert "Start the run with another name." in harness.record().current.reason
    assert foreign in harness.cloud.training.names("InProgress")


# --- requests that are out of date ----------------------------------------------------------------


def test_a_request_for_an_earlier_attempt_is_superseded(harness: ControlHarness) -> None:
    fail_first(harness)
    assert harness.arm(attempt=2) is Launch.CREATED
    output = answered(harness, harness.request(attempt=1), Launch.SUPERSEDED)
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
    complete(harness)
    assert harness.answer() is not None


def test_the_later_request_for_an_attempt_keeps_its_token(harness: ControlHarness) -> None:
    """It comes from a retry of the state, whose function is faster than the one before."""
    harness.plan()
    older = harness.request(retry=0)
    newer = harness.request(entered_at=older.entered_at, retry=1)
    assert [harness.attempt(one) for one in (newer, older)] == [Launch.CREATED, Launch.SUPERSEDED]
    assert (harness.record().token, harness.output(newer.token)) == (newer.token, None)


def test_a_rerun_that_becomes_due_during_the_call_is_early_or_launched_and_never_refused(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time passes between any two looks at the clock."""
    for left in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0):
        with row(left) as harness:
            fail_first(harness, **waiting(100))
            request, clock = harness.request(attempt=2), harness.cloud.clock
            clock.advance(harness.decided()["delay_seconds"] - left)

            def later() -> datetime:
                clock.advance(1)  # noqa: B023 - called within the row
                return clock.now()  # noqa: B023

            monkeypatch.setattr(clock, "utc_now", later)
            assert harness.attempt(request) is (Launch.CREATED if left <= 1 else Launch.EARLY)


def test_an_attempt_that_was_not_decided_on_is_not_launched(row: Row) -> None:
    for name, before, attempt in (
        ("nothing was launched", ControlHarness.plan, 2),
        ("attempt 1 trains", launched, 2),
        ("attempt 2 was decided on", fail_first, 3),
    ):
        with row(name) as harness:
            before(harness)
            created = jobs_created(harness)
            with pytest.raises(LookupError, match=f"attempt {attempt} of replica 0"):
                harness.arm(attempt=attempt)
            assert jobs_created(harness) == created


# --- the fence ------------------------------------------------------------------------------------


def test_a_rerun_that_waits_is_refused_once_the_run_is_stopping(harness: ControlHarness) -> None:
    """Long delays are served in pieces for this: no run outlasts the delay of its most patient replica."""
    fail_first(harness, **waiting(1_000))
    harness.plane.runs.require(RUN).documents.raise_fence(CANCELLED)
    assert answered(harness, harness.request(attempt=2), Launch.REFUSED)["next"] == "fail"


def test_a_fence_that_is_raised_while_the_job_is_created_stops_it(row: Row) -> None:
    """Its creation is answered or not; or the function ends, and the next call adopts the job that stop did not see."""
    for error in (None, lost_answer("CreateTrainingJob").error, FunctionEndedError()):
        with row(f"answer: {error!r}") as harness:
            raise_fence = partial(harness.plan().documents.raise_fence, CANCELLED)
            fence = Fault("CreateTrainingJob", error, after_effect=True, action=raise_fence)
            harness.cloud.calls.inject(fence)
            if error is None:
                assert harness.arm() is Launch.CREATED
            else:
                with pytest.raises((ClientError, FunctionEndedError)):
                    harness.arm()
            if isinstance(error, FunctionEndedError):
                assert harness.arm() is Launch.ADOPTED
            assert harness.cloud.training.names("Stopping") == [harness.job()]


# --- the cost ceiling -----------------------------------------------------------------------------


def test_a_rerun_is_not_launched_once_the_others_have_spent_what_was_left(harness: ControlHarness) -> None:
    fail_first(harness, cost_ceiling_usd=1.0)
    harness.plane.store.create(f"{SPENT}1-1-cost-2000000", b"{}")
    assert answered(harness, harness.request(attempt=2), Launch.CONCLUDED)["next"] == "stop"
    current = harness.record().current
    assert (current.attempt, current.failure_class, current.secondary) == (2, FailureClass.UNKNOWN, NOT_CREATED)
    assert current.reason == "the cost ceiling of $1.00 is reached (about $2.00 spent, at prices of us-west-2)"
    assert jobs_created(harness) == 1


def test_a_first_attempt_is_launched_whatever_was_spent(harness: ControlHarness) -> None:
    harness.plan(cost_ceiling_usd=1.0)
    harness.plane.store.create(f"{SPENT}1-1-cost-2000000", b"{}")
    assert harness.arm() is Launch.CREATED
