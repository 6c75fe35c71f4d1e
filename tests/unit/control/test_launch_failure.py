"""A replica that cannot be launched is lost like one whose retry budget is used up: the others train on."""

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED
from muster.contract.run.record import Decision, Next
from muster.contract.run.result import Verdict
from muster.control.attempt_request import Launch
from muster.control.launch_failure import LaunchFailure, give_up_replica
from tests.memory import Fault, lost_answer, throttle
from tests.memory.harness import RUN, ControlHarness
from tests.support.control_steps import AGAIN, Row, create_job, fail, finished, found
from tests.support.function_rights import rights_of

CONTINUE = {"replicas": 3, "on_replica_failure": "continue", "min_replicas": 2}
REASON = "replica 0 could not be launched: Muster.DocumentError: damaged"


@pytest.fixture
def harness(harness: ControlHarness) -> ControlHarness:
    """With a run of three replicas, of which it needs two."""
    harness.plan(**CONTINUE)
    return harness


def give_up(harness: ControlHarness, rank: int = 0, attempt: int = 1) -> Decision:
    """What the workflow asks for once all retries of attempt have failed."""
    return give_up_replica(harness.plane, LaunchFailure(run=RUN, rank=rank, attempt=attempt, reason=REASON))


def lost(harness: ControlHarness) -> list[str]:
    return harness.keys(f"control/{RUN}/lost/")


def fail_launch(harness: ControlHarness, fault: Fault, attempt: int = 1) -> None:
    harness.cloud.calls.inject(fault)
    with pytest.raises(ClientError):
        harness.arm(attempt=attempt)


def ends(harness: ControlHarness) -> list[str]:
    """The outcomes of the replicas once the others have completed; the run has succeeded."""
    for rank in (1, 2):
        harness.arm(rank)
        harness.cloud.training.complete(harness.job(rank))
    harness.deliver()
    result = finished(harness).result
    assert result.verdict is Verdict.SUCCEEDED
    return [replica.outcome.value for replica in result.replicas]


def test_the_others_train_on_and_the_run_succeeds(row: Row) -> None:
    for name, operation, outcome in (
        ("before its record", "PutObject", "failed"),
        ("before its job", "CreateTrainingJob", "failed"),
    ):
        with row(name) as harness:
            run = harness.plan(**CONTINUE)
            fail_launch(harness, throttle(operation))
            decision = give_up(harness)
            assert (decision.next, run.documents.fence()) == (Next.FAIL, None)
            if outcome == "failed":
                record = harness.record()
                assert (record.current.failure_class, record.current.secondary) == (FailureClass.UNKNOWN, NOT_CREATED)
                assert (record.current.reason, found(record.decision).lost) == (REASON, True)
            assert ends(harness) == [outcome, "succeeded", "succeeded"]


def test_the_run_stops_once_it_has_lost_its_quorum(harness: ControlHarness) -> None:
    assert [give_up(harness, rank).next for rank in (0, 1)] == [Next.FAIL, Next.STOP]
    assert give_up(harness, 1).next is Next.STOP


def test_a_job_that_the_failed_call_created_is_stopped(harness: ControlHarness) -> None:
    fail_launch(harness, lost_answer("CreateTrainingJob"))
    give_up(harness)
    assert harness.cloud.training.names("Stopping") == [harness.job()]
    current = harness.record().current
    assert (current.was_created, current.failure_class) == (True, FailureClass.UNKNOWN)


def test_a_call_that_is_on_its_way_leaves_no_job_of_a_replica_that_was_given_up(row: Row) -> None:
    for name, operation, names in (
        ("before its record", "PutObject", []),
        ("before its job", "CreateTrainingJob", ["muster-one-r0-a1"]),
    ):
        with row(name) as harness:
            harness.plan(**CONTINUE)
            harness.cloud.calls.inject(Fault(operation, action=lambda harness=harness: give_up(harness)))
            harness.arm()
            harness.deliver()
            assert harness.cloud.training.names("Stopping") == names
            assert harness.cloud.training.names("InProgress") == []


def test_a_job_that_ended_unseen_keeps_its_own_end(row: Row) -> None:
    """Its event was lost, and attempt has not worked since; or the end was recorded meanwhile: nothing is lost."""
    for reason, is_recorded in ((None, True), (None, False), (AGAIN, True), (AGAIN, False)):
        with row(f"{reason}, recorded: {is_recorded}") as harness:
            harness.plan(**CONTINUE)
            harness.arm()
            if reason is None:
                harness.cloud.training.complete(harness.job())
            else:
                harness.cloud.training.fail(harness.job(), reason)
            if is_recorded:
                harness.deliver()
            else:
                fail_launch(harness, throttle("PutObject"))
            assert give_up(harness).next is (Next.DONE if reason is None else Next.RERUN)
            assert harness.record().current.failure_class is (reason and FailureClass.INFRASTRUCTURE)
            assert lost(harness) == []


def test_what_stop_does_for_a_replica_of_a_run_with_a_ceiling_is_within_its_rights(row: Row) -> None:
    for reason, follows in ((None, Next.DONE), (AGAIN, Next.RERUN), ("AlgorithmError: no", Next.FAIL)):
        with row(reason) as harness:
            harness.plan(**CONTINUE, cost_ceiling_usd=500)
            harness.arm()
            if reason is None:
                harness.cloud.training.complete(harness.job())
            else:
                harness.cloud.training.fail(harness.job(), reason)
            harness.cloud.calls.inject(rights_of("stop"))
            assert give_up(harness).next is follows
            assert [key for key in harness.keys(f"control/{RUN}/spent/") if "cost" in key]


def test_a_rerun_that_cannot_be_launched_is_lost(harness: ControlHarness) -> None:
    harness.arm()
    fail(harness, AGAIN)
    fail_launch(harness, throttle("PutObject"), attempt=2)
    assert give_up(harness, attempt=2).next is Next.FAIL
    assert lost(harness) == ["0"]
    assert harness.record().decision == give_up(harness, attempt=2)


def test_a_damaged_record_does_not_end_the_run(harness: ControlHarness) -> None:
    harness.arm()
    harness.plane.store.s3.put_object(Bucket="bucket", Key=f"control/{RUN}/replicas/0.json", Body=b"damaged")
    assert give_up(harness).next is Next.FAIL
    assert lost(harness) == ["0"]
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_a_workflow_that_has_fallen_behind_continues_with_the_current_attempt(harness: ControlHarness) -> None:
    harness.arm()
    fail(harness, AGAIN)
    assert harness.arm(attempt=2) is Launch.CREATED
    decision = give_up(harness)
    assert (decision.next, decision.attempt) == (Next.RERUN, 2)
    assert harness.cloud.training.names("InProgress") == [harness.job(attempt=2)]


def test_a_foreign_job_under_the_name_is_left_alone(harness: ControlHarness) -> None:
    fail_launch(harness, throttle("CreateTrainingJob"))
    foreign = create_job(harness, harness.job(), Tags=[])
    give_up(harness)
    assert harness.cloud.training.names("InProgress") == [foreign]
