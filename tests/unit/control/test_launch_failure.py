"""A replica that cannot be launched is lost like one whose retry budget is used up: the others train on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.record import Decision, Next
from muster.contract.run.result import Verdict
from muster.control.attempt import Launch
from muster.control.finish import finish_run
from muster.control.launch_failure import LaunchFailure, give_up_replica
from tests.memory import AwsError, Fault, lost_answer, throttle
from tests.memory.harness import RUN, ControlHarness, budget

CONTINUE = {"replicas": 3, "on_replica_failure": "continue", "min_replicas": 2}
REASON = "replica 0 could not be launched: Muster.DocumentError: damaged"
DEFINITION = Path(__file__).resolve().parents[3] / "statemachine" / "run.asl.json"


def end_job(harness: ControlHarness, *, completes: bool) -> None:
    """Let the first job complete, or fail so that a rerun follows."""
    if completes:
        harness.cloud.training.complete(harness.job())
    else:
        harness.cloud.training.fail(harness.job(), "InternalServerError: again")


def give_up(harness: ControlHarness, rank: int = 0, attempt: int = 1) -> Decision:
    """What the workflow asks for once all retries of attempt have failed."""
    return give_up_replica(harness.plane, LaunchFailure(run=RUN, rank=rank, attempt=attempt, reason=REASON))


def finished(harness: ControlHarness) -> tuple[Verdict, list[str]]:
    finish_run(harness.plane, harness.plane.runs.require(RUN), budget())
    result = harness.result()
    assert result is not None
    return result.verdict, [replica.outcome.value for replica in result.replicas]


def complete_others(harness: ControlHarness) -> None:
    for rank in (1, 2):
        harness.arm(rank)
        harness.cloud.training.complete(harness.job(rank))
    harness.deliver()


def fail_launch(harness: ControlHarness, fault: Fault, attempt: int = 1) -> None:
    harness.cloud.calls.inject(fault)
    with pytest.raises(ClientError):
        harness.arm(attempt=attempt)


@pytest.mark.parametrize("error", ["before its record", "before its job"])
def test_the_others_train_on_and_the_run_succeeds(harness: ControlHarness, error: str) -> None:
    harness.plan(**CONTINUE)
    fail_launch(harness, throttle("PutObject" if error == "before its record" else "CreateTrainingJob"))
    assert give_up(harness).next is Next.FAIL
    assert harness.plane.runs.require(RUN).documents.fence() is None
    complete_others(harness)
    outcome = "not-launched" if error == "before its record" else "failed"
    assert finished(harness) == (Verdict.SUCCEEDED, [outcome, "succeeded", "succeeded"])


def test_what_is_recorded_is_why_it_was_given_up(harness: ControlHarness) -> None:
    harness.plan(**CONTINUE)
    fail_launch(harness, throttle("CreateTrainingJob"))
    give_up(harness)
    record = harness.record()
    assert (record.current.failure_class, record.current.secondary) == (FailureClass.UNKNOWN, NOT_CREATED)
    assert record.current.reason == REASON
    assert record.decision is not None
    assert (record.decision.next, record.decision.lost) == (Next.FAIL, True)


def test_the_run_stops_once_it_has_lost_its_quorum(harness: ControlHarness) -> None:
    harness.plan(**CONTINUE)
    assert [give_up(harness, rank).next for rank in (0, 1)] == [Next.FAIL, Next.STOP]
    assert give_up(harness, 1).next is Next.STOP


def test_a_run_that_ends_with_its_first_loss_stops(harness: ControlHarness) -> None:
    harness.plan(replicas=3)
    decision = give_up(harness)
    assert (decision.next, decision.reason) == (Next.STOP, REASON)


def test_a_job_that_the_failed_call_created_is_stopped(harness: ControlHarness) -> None:
    harness.plan(**CONTINUE)
    fail_launch(harness, lost_answer("CreateTrainingJob"))
    give_up(harness)
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_a_job_that_trains_and_can_no_longer_be_checked_is_stopped(harness: ControlHarness) -> None:
    harness.plan(**CONTINUE)
    harness.arm()
    harness.cloud.training.train(harness.job())
    harness.deliver()
    fail_launch(harness, throttle("PutObject"))
    give_up(harness)
    assert harness.cloud.training.names("Stopping") == [harness.job()]
    harness.cloud.clock.advance(120)
    harness.deliver()
    complete_others(harness)
    assert finished(harness) == (Verdict.SUCCEEDED, ["failed", "succeeded", "succeeded"])


def test_a_job_that_the_failed_call_created_is_no_job_that_was_not_created(harness: ControlHarness) -> None:
    harness.plan(**CONTINUE)
    fail_launch(harness, lost_answer("CreateTrainingJob"))
    give_up(harness)
    current = harness.record().current
    assert (current.was_created, current.failure_class) == (True, FailureClass.UNKNOWN)


@pytest.mark.parametrize("end", ["completed", "failed"])
def test_a_job_that_ended_unseen_keeps_its_own_end(harness: ControlHarness, end: str) -> None:
    """Its event was lost, and attempt has not worked since: the replica is not lost for that."""
    harness.plan(**CONTINUE)
    harness.arm()
    end_job(harness, completes=end == "completed")
    harness.cloud.notifications.drain()
    fail_launch(harness, throttle("PutObject"))
    decision = give_up(harness)
    failed = end == "failed"
    assert decision.next is (Next.RERUN if failed else Next.DONE)
    assert harness.record().current.failure_class is (FailureClass.INFRASTRUCTURE if failed else None)
    assert harness.keys(f"control/{RUN}/lost/") == []


def test_a_stop_that_was_throttled_is_repeated_by_the_next_call(harness: ControlHarness) -> None:
    harness.plan(**CONTINUE)
    fail_launch(harness, lost_answer("CreateTrainingJob"))
    harness.cloud.calls.inject(throttle("StopTrainingJob"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        give_up(harness)
    assert give_up(harness).next is Next.FAIL
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_a_rerun_that_cannot_be_launched_is_lost(harness: ControlHarness) -> None:
    harness.plan(**CONTINUE)
    harness.arm()
    harness.cloud.training.fail(harness.job(), "InternalServerError: again")
    harness.deliver()
    fail_launch(harness, throttle("PutObject"), attempt=2)
    assert give_up(harness, attempt=2).next is Next.FAIL
    assert harness.keys(f"control/{RUN}/lost/") == ["0"]
    assert harness.record().decision == give_up(harness, attempt=2)


def test_a_damaged_record_does_not_end_the_run(harness: ControlHarness) -> None:
    run = harness.plan(**CONTINUE)
    harness.arm()
    harness.plane.store.s3.put_object(Bucket="bucket", Key=run.documents.layout.record(0), Body=b"damaged")
    assert give_up(harness).next is Next.FAIL
    assert harness.keys(f"control/{RUN}/lost/") == ["0"]
    assert harness.cloud.training.names("Stopping") == [harness.job()]


@pytest.mark.parametrize("end", ["completes", "fails"])
def test_an_end_that_was_recorded_meanwhile_is_what_the_workflow_gets(harness: ControlHarness, end: str) -> None:
    harness.plan(**CONTINUE)
    harness.arm()
    end_job(harness, completes=end == "completes")
    harness.deliver()
    decision = give_up(harness)
    assert decision.next is (Next.DONE if end == "completes" else Next.RERUN)
    assert harness.keys(f"control/{RUN}/lost/") == []


def test_a_workflow_that_has_fallen_behind_continues_with_the_current_attempt(harness: ControlHarness) -> None:
    harness.plan(**CONTINUE)
    harness.arm()
    harness.cloud.training.fail(harness.job(), "InternalServerError: again")
    harness.deliver()
    assert harness.arm(attempt=2) is Launch.CREATED
    decision = give_up(harness)
    assert (decision.next, decision.attempt) == (Next.RERUN, 2)
    assert harness.cloud.training.names("InProgress") == [harness.job(attempt=2)]


def test_a_replica_of_a_run_that_is_stopping_is_not_lost(harness: ControlHarness) -> None:
    run = harness.plan(**CONTINUE)
    fail_launch(harness, throttle("CreateTrainingJob"))
    run.documents.raise_fence(Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="", at="t"))
    assert give_up(harness).next is Next.FAIL
    assert harness.record().current.failure_class is FailureClass.STOPPED_BY_MUSTER
    assert harness.keys(f"control/{RUN}/lost/") == []


def test_a_foreign_job_under_the_name_is_left_alone(harness: ControlHarness) -> None:
    harness.plan(**CONTINUE)
    accepted: list[dict[str, Any]] = []
    keep = Fault(
        "CreateTrainingJob",
        AwsError("InternalFailure", "", 500),
        when=lambda call: not accepted.append(call.parameters),
    )
    fail_launch(harness, keep)
    foreign = {**accepted[0], "Tags": [{"Key": "muster:run", "Value": "another"}]}
    harness.cloud.client("sagemaker").create_training_job(**foreign)
    give_up(harness)
    assert harness.cloud.training.names("InProgress") == [harness.job()]


def test_the_workflow_gives_the_replica_up_before_it_stops_the_run() -> None:
    machine = json.loads(DEFINITION.read_text(encoding="utf-8"))
    states = machine["States"]["Train the replicas"]["ItemProcessor"]["States"]
    with_failure = "{% $merge([$states.input, {'failure': $states.errorOutput}]) %}"
    assert {"ErrorEquals": ["States.ALL"], "Output": with_failure, "Next": "The launch failed"} in states[
        "Launch the job and wait for its end"
    ]["Catch"]
    given_up = states[states["The launch failed"]["Next"]]
    sent = {name.removesuffix(".$") for name in given_up["Parameters"]["Payload"]}
    assert sent == set(LaunchFailure.model_fields)
    assert sent == {name.removesuffix(".$") for name in states["The launch failed"]["Parameters"]}
    assert (given_up["OutputPath"], given_up["Next"]) == ("$.Payload", "Done, rerun or stop?")
    assert [catch["Next"] for catch in given_up["Catch"]] == ["Stop the whole run"]
