"""The end of an attempt: decided once, announced as often as it takes."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass, JobEnd
from muster.contract.aws.job_status import JobStatus
from muster.contract.run.attempt import Attempt
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.record import Next
from muster.contract.run.result import Verdict
from muster.control.active_run import ActiveRun
from muster.control.aws.task_tokens import Waiting
from muster.control.cost_ceiling import reached_ceiling
from muster.control.outcome import announce_end, end_attempt
from tests.memory import Fault, server_error
from tests.memory.harness import RUN, ControlHarness

CONTROL = f"control/{RUN}/"
AGAIN = "InternalServerError: again"
BROKEN = "AlgorithmError: ExitCode 1"


def ended(harness: ControlHarness, reason: str | None = None, rank: int = 0) -> Attempt:
    """The current attempt after its end: completed, or failed for a reason."""
    status = JobStatus.COMPLETED if reason is None else JobStatus.FAILED
    return harness.record(rank).current.ended(JobEnd(status, status.value, reason or ""), "2026-01-01T00:00:05.000Z")


def stopped(harness: ControlHarness, rank: int = 0) -> Attempt:
    return harness.record(rank).current.ended(JobEnd(JobStatus.STOPPED, "Stopped"), "2026-01-01T00:00:05.000Z")


def raise_fence(run: ActiveRun) -> None:
    run.documents.raise_fence(Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="", at="t"))


# --- decided once ---------------------------------------------------------------------------------


def test_an_end_is_decided_once_and_announced_to_the_workflow(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    outcome = end_attempt(harness.plane, run.replica(0), ended(harness))
    assert outcome is not None
    assert (outcome.decision.next, outcome.fresh) == (Next.DONE, True)
    assert harness.answer() == harness.decided()
    assert harness.record().current.status == "Completed"


def test_a_repeated_event_gathers_no_facts_again(harness: ControlHarness) -> None:
    harness.plan(cost_ceiling_usd=100.0)
    harness.arm()
    harness.cloud.training.fail(harness.job(), AGAIN)
    event = harness.last_event(harness.job())
    harness.react(event)
    before = harness.cloud.calls.counts()
    assert harness.react(event).what == "announced again: the decision was already recorded"
    again = harness.cloud.calls.counts() - before
    # The record is read once, and the roll-up: the launch that would write this end may not have followed. Marks and
    # token are repeated; the fence, the bill and the sum are not.
    assert again["GetObject"] == 2
    assert again["DescribeTrainingJob"] == again["ListObjectsV2"] == 0
    assert again["SendTaskFailure"] == 1


def test_an_end_that_is_reported_again_is_announced_again_and_not_decided_again(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    end = ended(harness, AGAIN)
    first = end_attempt(harness.plane, run.replica(0), end)
    decided = harness.record()
    harness.cloud.clock.advance(60)
    second = end_attempt(harness.plane, run.replica(0), end.model_copy(update={"reason": "another"}))
    assert first is not None
    assert second is not None
    assert (first.fresh, second.fresh) == (True, False)
    assert second.decision == first.decision
    assert harness.record() == decided
    # The workflow was asked twice to continue; the second token call met a task that is gone.
    assert harness.cloud.calls.counts()["SendTaskFailure"] == 2
    assert harness.emitted().count("Replica Rerun") == 1


def test_the_end_of_an_attempt_that_is_not_the_current_one_does_nothing(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    old = ended(harness, AGAIN)
    end_attempt(harness.plane, run.replica(0), old)
    harness.arm(attempt=2)
    before = harness.record()
    assert end_attempt(harness.plane, run.replica(0), old) is None
    assert harness.record() == before
    assert harness.answer() is None


def test_an_end_of_a_replica_without_a_record_does_nothing(harness: ControlHarness) -> None:
    run = harness.plan(replicas=2)
    harness.arm()
    assert end_attempt(harness.plane, run.replica(1), ended(harness)) is None
    assert run.documents.record(1).record is None


def test_of_two_that_decide_at_once_the_first_one_stands(harness: ControlHarness) -> None:
    """An event and a re-arm; the second one finds the decision when its write is refused."""
    run = harness.plan()
    harness.arm()
    seen = run.documents.record(0)
    end = ended(harness, AGAIN)
    end_attempt(harness.plane, run.replica(0), end)
    harness.cloud.clock.advance(60)
    decided = harness.record()
    outcome = end_attempt(harness.plane, run.replica(0), end, seen)
    assert outcome is not None
    assert not outcome.fresh
    assert harness.record() == decided


def test_a_record_that_was_noted_in_between_gets_the_end_all_the_same(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    seen = run.documents.record(0)
    request = harness.request()
    harness.attempt(request)
    outcome = end_attempt(harness.plane, run.replica(0), ended(harness), seen)
    assert outcome is not None
    assert outcome.fresh
    assert harness.output(request.token) == harness.decided()


# --- announced ------------------------------------------------------------------------------------


def test_a_token_that_is_gone_is_no_error_and_the_next_call_announces_to_the_new_one(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    harness.cloud.workflow.expire(harness.record().token)
    assert end_attempt(harness.plane, run.replica(0), ended(harness)) is not None
    assert harness.answer() is None
    fresh = harness.cloud.workflow.token(RUN)
    decision = harness.record().decision
    assert decision is not None
    announce_end(harness.plane, run.replica(0), harness.record(), Waiting(fresh, catches_reruns=False))
    assert harness.output(fresh) == harness.decided()


@pytest.mark.parametrize("operation", ["SendTaskSuccess", "PutObject"])
def test_what_could_not_be_announced_is_announced_when_the_end_is_reported_again(
    harness: ControlHarness, operation: str
) -> None:
    """The decision is written; then a mark, or the token, fails."""
    run = harness.plan(replicas=2, on_replica_failure="continue", min_replicas=1)
    harness.arm()
    end = ended(harness, BROKEN)
    marks = Fault(
        operation, server_error(operation).error, when=lambda call: "replicas/" not in call.parameters.get("Key", "")
    )
    harness.cloud.calls.inject(marks)
    with pytest.raises(ClientError):
        end_attempt(harness.plane, run.replica(0), end)
    assert harness.record().decision is not None
    assert harness.answer() is None
    assert end_attempt(harness.plane, run.replica(0), end) is not None
    assert harness.answer() == harness.decided()
    assert harness.keys(f"{CONTROL}lost/") == ["0"]


def test_a_rerun_is_announced_although_the_entry_in_the_roll_up_could_not_be_written(harness: ControlHarness) -> None:
    run = harness.plan(reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 30}})
    harness.arm()
    shard = run.documents.layout.roll_up_shard(0)
    down = Fault("PutObject", server_error("PutObject").error, when=lambda call: call.parameters["Key"] == shard)
    harness.cloud.calls.inject(down)
    end = ended(harness, AGAIN)
    with pytest.raises(ClientError):
        end_attempt(harness.plane, run.replica(0), end)
    # The event is delivered again.
    assert end_attempt(harness.plane, run.replica(0), end) is not None
    assert (down.fired, harness.emitted().count("Replica Rerun")) == (1, 1)
    assert harness.answer() == harness.decided()


def test_an_event_bus_that_is_down_delays_nothing(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    harness.cloud.calls.inject(server_error("PutEvents"))
    assert end_attempt(harness.plane, run.replica(0), ended(harness, AGAIN)) is not None
    assert harness.answer() == harness.decided()
    assert "Replica Rerun" not in harness.emitted()


def test_an_event_that_the_bus_does_not_take_is_no_error(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    harness.cloud.events.refuse_next = 1
    assert end_attempt(harness.plane, run.replica(0), ended(harness, AGAIN)) is not None


def test_a_rerun_is_an_event_with_its_class_reason_and_delay(harness: ControlHarness) -> None:
    run = harness.plan(reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 100}})
    harness.arm()
    end_attempt(harness.plane, run.replica(0), ended(harness, AGAIN))
    [event] = harness.cloud.events.of("Replica Rerun")
    assert (event["rank"], event["attempt"], event["failure_class"]) == (0, 1, "infrastructure")
    assert event["reason"] == AGAIN
    decision = harness.record().decision
    assert decision is not None
    assert event["delay_seconds"] == decision.delay_seconds >= 100


# --- marks and quorum -----------------------------------------------------------------------------


def test_a_success_leaves_no_mark_and_no_event(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    end_attempt(harness.plane, run.replica(0), ended(harness))
    assert harness.keys(f"{CONTROL}lost/") == harness.keys(f"{CONTROL}spent/") == []
    assert harness.emitted() == ["Replica Launched"]


def test_a_lost_replica_without_which_the_run_continues_only_fails(harness: ControlHarness) -> None:
    run = harness.plan(replicas=3, on_replica_failure="continue", min_replicas=2)
    harness.arm()
    outcome = end_attempt(harness.plane, run.replica(0), ended(harness, BROKEN))
    assert outcome is not None
    assert outcome.decision.next is Next.FAIL
    assert harness.record().decision == outcome.decision


def test_of_replicas_lost_at_once_the_last_one_stops_the_run(harness: ControlHarness) -> None:
    run = harness.plan(replicas=3, on_replica_failure="continue", min_replicas=2)
    for rank in range(2):
        harness.arm(rank)
    ends = [ended(harness, BROKEN, rank) for rank in range(2)]
    # The end of rank 1 is decided and announced while the mark of rank 0 is being written.
    rival = Fault(
        "PutObject",
        when=lambda call: call.parameters["Key"] == f"{CONTROL}lost/0",
        action=lambda: end_attempt(harness.plane, run.replica(1), ends[1]),
    )
    harness.cloud.calls.inject(rival)
    end_attempt(harness.plane, run.replica(0), ends[0])
    answers = [harness.answer(rank) for rank in range(2)]
    assert [answer and answer["next"] for answer in answers] == ["stop", "fail"]
    # STOP depends on the others: no record holds it.
    assert [harness.decided(rank)["next"] for rank in range(2)] == ["fail", "fail"]


def test_a_loss_that_is_reported_again_after_others_were_lost_stops_the_run(harness: ControlHarness) -> None:
    run = harness.plan(replicas=3, on_replica_failure="continue", min_replicas=2)
    for rank in range(2):
        harness.arm(rank)
    end = ended(harness, BROKEN)
    end_attempt(harness.plane, run.replica(0), end)
    end_attempt(harness.plane, run.replica(1), ended(harness, BROKEN, 1))
    again = end_attempt(harness.plane, run.replica(0), end)
    assert again is not None
    assert again.decision.next is Next.STOP


# --- who stopped it -------------------------------------------------------------------------------


def test_a_job_that_was_stopped_in_a_run_that_trains_was_stopped_by_a_user(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    outcome = end_attempt(harness.plane, run.replica(0), stopped(harness))
    assert outcome is not None
    assert outcome.decision.lost
    assert harness.record().current.failure_class is FailureClass.STOPPED_BY_USER


def test_a_job_that_was_stopped_in_a_run_that_is_stopping_was_stopped_by_muster(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    raise_fence(run)
    outcome = end_attempt(harness.plane, run.replica(0), stopped(harness))
    assert outcome is not None
    assert (outcome.decision.next, outcome.decision.lost) == (Next.FAIL, False)
    assert harness.record().current.failure_class is FailureClass.STOPPED_BY_MUSTER
    assert harness.keys(f"{CONTROL}lost/") == []


def test_a_failure_in_a_run_that_is_stopping_keeps_its_class_and_is_not_rerun(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    raise_fence(run)
    outcome = end_attempt(harness.plane, run.replica(0), ended(harness, AGAIN))
    assert outcome is not None
    assert (outcome.decision.next, outcome.decision.reason) == (Next.FAIL, "the run is stopping")
    assert harness.record().current.failure_class is FailureClass.INFRASTRUCTURE


# --- the cost ceiling -----------------------------------------------------------------------------


def trained(harness: ControlHarness, seconds: float) -> None:
    harness.arm()
    harness.cloud.training.train(harness.job())
    harness.cloud.clock.advance(seconds)


def test_an_attempt_that_reaches_the_ceiling_with_its_own_bill_is_not_rerun(harness: ControlHarness) -> None:
    run = harness.plan(cost_ceiling_usd=0.1)
    trained(harness, 7_200)
    harness.cloud.training.fail(harness.job(), AGAIN)
    outcome = end_attempt(harness.plane, run.replica(0), ended(harness, AGAIN))
    assert outcome is not None
    assert outcome.decision.lost
    assert outcome.decision.reason.startswith("replica 0 was lost: the cost ceiling of $0.10 is reached (about $")
    assert harness.record().current.billable_seconds == 7_200
    [mark] = [key for key in harness.keys(f"{CONTROL}spent/") if "cost" in key]
    # 7,200 s of ml.m5.large at $0.115 an hour
    assert mark == "0-1-cost-230000"


def test_the_bill_counts_and_not_the_time_that_has_passed(harness: ControlHarness) -> None:
    """Managed spot bills less: 600 of 7,200 s."""
    run = harness.plan(cost_ceiling_usd=0.1)
    trained(harness, 7_200)
    harness.cloud.training.set_billable_seconds(harness.job(), 600)
    harness.cloud.training.fail(harness.job(), AGAIN)
    outcome = end_attempt(harness.plane, run.replica(0), ended(harness, AGAIN))
    assert outcome is not None
    assert outcome.decision.next is Next.RERUN


def test_below_the_ceiling_a_rerun_is_decided(harness: ControlHarness) -> None:
    run = harness.plan(cost_ceiling_usd=0.5)
    trained(harness, 7_200)
    harness.cloud.training.fail(harness.job(), AGAIN)
    outcome = end_attempt(harness.plane, run.replica(0), ended(harness, AGAIN))
    assert outcome is not None
    assert outcome.decision.next is Next.RERUN


def test_while_sagemaker_has_not_chosen_a_type_the_dearest_one_counts(harness: ControlHarness) -> None:
    preferences = [{"instance_type": name} for name in ("ml.m5.large", "ml.m5.xlarge")]
    harness.plan(instance_type=None, instance_preferences=preferences, cost_ceiling_usd=100.0)
    harness.arm()
    assert harness.keys(f"{CONTROL}spent/") == ["0-1-on-ml.m5.xlarge"]


def test_once_sagemaker_has_named_the_type_that_one_counts(harness: ControlHarness) -> None:
    preferences = [{"instance_type": name} for name in ("ml.m5.large", "ml.p5.48xlarge")]
    run = harness.plan(instance_type=None, instance_preferences=preferences, cost_ceiling_usd=100.0)
    harness.arm()
    harness.cloud.training.train(harness.job(), "ml.m5.large")
    harness.deliver()
    assert harness.keys(f"{CONTROL}spent/") == ["0-1-on-ml.m5.large", "0-1-on-ml.p5.48xlarge"]
    # Ten hours of an ml.p5.48xlarge would be $633.
    harness.cloud.clock.advance(36_000)
    assert reached_ceiling(run) is None


def test_a_job_that_cannot_be_found_any_more_has_cost_nothing(harness: ControlHarness) -> None:
    run = harness.plan(cost_ceiling_usd=100.0)
    harness.cloud.calls.inject(server_error("CreateTrainingJob"))
    with pytest.raises(ClientError):
        harness.arm()
    end_attempt(harness.plane, run.replica(0), ended(harness, AGAIN))
    assert harness.record().current.billable_seconds == 0


def test_the_bill_is_at_the_price_of_the_type_that_sagemaker_chose(harness: ControlHarness) -> None:
    """Also where no event has told of it."""
    preferences = [{"instance_type": name} for name in ("ml.m5.large", "ml.m5.xlarge")]
    run = harness.plan(instance_type=None, instance_preferences=preferences, cost_ceiling_usd=100.0)
    trained(harness, 7_200)
    harness.cloud.training.fail(harness.job(), AGAIN)
    end_attempt(harness.plane, run.replica(0), ended(harness, AGAIN))
    assert "0-1-cost-230000" in harness.keys(f"{CONTROL}spent/")
    assert harness.record().current.instance_type == "ml.m5.large"


def test_a_rule_that_says_stop_stops_a_run_that_could_do_without_the_replica(harness: ControlHarness) -> None:
    spec = {"replicas": 4, "min_replicas": 1, "on_replica_failure": "continue", "watch": {"loss": {"then": "stop"}}}
    run = harness.plan(**spec)
    harness.arm()
    outcome = end_attempt(
        harness.plane, run.replica(0), ended(harness, "AlgorithmError: [loss] its metric loss is nan")
    )
    assert outcome is not None
    assert outcome.decision.next is Next.STOP
    assert outcome.decision.reason.startswith("replica 0 was lost: watch.loss.then is stop: AlgorithmError: [loss]")
    decided = harness.record().decision
    assert decided is not None
    assert decided.next is Next.FAIL, "a record holds what is the replica's alone"
