"""What follows the end of an attempt: decided once, and announced as often as it takes."""

from dataclasses import replace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass, JobEnd
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import ATTEMPT_MAX
from muster.contract.run.attempt import NOT_CREATED, Attempt
from muster.contract.run.record import Decision, Next, Record
from muster.contract.spec.retry_budget import Budget
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.timestamps import Timestamp
from muster.control.attempt_end import Outcome, end_attempt
from muster.control.cost_ceiling import reached_ceiling, with_bill
from muster.control.rerun_decision import Facts, can_do_without, decide_end, ends_within_hour, judge
from tests.memory import Fault, server_error
from tests.memory.harness import RUN, ControlHarness
from tests.support.control_steps import AGAIN, BROKEN, Row, found, launched

FIELDS = {"replicas": 4, "trainer": "a.b:c"}
SPEC = parse_spec({**FIELDS, "reruns": {"spot": {"max_reruns": 2, "delay_seconds": 10}}})
FACTS = Facts(SPEC, stopping=False, ceiling=None, now=Timestamp("2026-05-04T03:00:00.000Z"))
SPOT, INFRASTRUCTURE, USER_CODE = FailureClass.SPOT, FailureClass.INFRASTRUCTURE, FailureClass.USER_CODE
LOST, SPENT = f"control/{RUN}/lost/", f"control/{RUN}/spent/"


def attempts(*ends: tuple[FailureClass | None, str], first: int = 1) -> tuple[Attempt, ...]:
    """Attempts that ended in these classes for these reasons."""
    return tuple(
        Attempt(attempt=number, job=f"j{number}", failure_class=failure_class, reason=reason)
        for number, (failure_class, reason) in enumerate(ends, start=first)
    )


def test_what_follows_from_the_classes_of_all_ends() -> None:
    def history(*classes: FailureClass | None, first: int = 1) -> tuple[Attempt, ...]:
        return attempts(*((one, "why") for one in classes), first=first)

    def lost(attempt: int, why: str) -> Decision:
        return Decision(next=Next.FAIL, attempt=attempt, lost=True, reason=f"replica 0 was lost: {why}: why")

    ceiling, stopping = replace(FACTS, ceiling="the ceiling"), replace(FACTS, stopping=True)
    done = Decision(next=Next.DONE, attempt=1)
    budget = "its retry budget for"
    for ends, facts, expected in (
        (history(None), ceiling, done),
        (history(None), stopping, done),
        (history(SPOT), stopping, Decision(next=Next.FAIL, attempt=1, reason="the run is stopping")),
        (history(SPOT), ceiling, lost(1, "the ceiling").model_copy(update={"at_ceiling": True})),
        (history(USER_CODE), FACTS, lost(1, f"{budget} user-code (0 reruns) is used up")),
        (history(SPOT, SPOT, SPOT), FACTS, lost(3, f"{budget} spot (2 reruns) is used up")),
        (history(SPOT, first=ATTEMPT_MAX), FACTS, lost(ATTEMPT_MAX, "it has had all 999 attempts")),
        (history(*[SPOT] * ATTEMPT_MAX), FACTS, lost(ATTEMPT_MAX, "it has had all 999 attempts")),
    ):
        assert judge(0, ends, facts) == expected, (ends, facts)
    # Each class has a budget of its own.
    decision = judge(0, history(SPOT, INFRASTRUCTURE, INFRASTRUCTURE, SPOT), FACTS)
    assert (decision.next, decision.attempt, decision.reason) == (Next.RERUN, 5, "spot")
    assert 20 <= decision.delay_seconds <= 25


def test_a_refusal_does_not_hide_the_job_that_another_call_has_created_meanwhile() -> None:
    """On a cluster: of two calls for an attempt one creates the job, the fence deletes it, and the other is late."""
    (current,) = attempts((None, ""))
    refused = current.model_copy(
        update={"status": "Stopped", "secondary": NOT_CREATED, "failure_class": FailureClass.STOPPED_BY_MUSTER}
    )
    for status, was_created in (("", False), ("InProgress", True)):
        seen = current.model_copy(update={"status": status, "secondary": "Training"})
        record = Record(run=RUN, rank=0, token="t", armed_at=FACTS.now, attempts=(seen,))
        ended = decide_end(record, refused, replace(FACTS, stopping=True))
        assert ended is not None
        assert (ended.current.was_created, ended.current.status) == (was_created, "Stopped")


def test_what_a_lost_replica_means() -> None:
    for fields, lost, expected in (
        ({"on_replica_failure": "terminate"}, 1, False),
        ({"on_replica_failure": "continue", "min_replicas": 2}, 2, True),
        ({"on_replica_failure": "continue", "min_replicas": 2}, 3, False),
        ({"on_replica_failure": "continue"}, 1, False),
    ):
        assert can_do_without(parse_spec({**FIELDS, **fields}), lost) is expected, (fields, lost)


def test_the_wait_doubles_up_to_its_bound_and_replicas_that_end_together_wait_differently() -> None:
    budget = Budget(max_reruns=100, delay_seconds=60, max_delay_seconds=1_000)
    assert [budget.delay(spent) for spent in (0, 1, 4, 5, 900)] == [60, 120, 960, 1_000, 1_000]
    ends = [
        Attempt(attempt=1, job=f"muster-run-r{rank}-a1", failure_class=FailureClass.CAPACITY) for rank in range(200)
    ]
    delays = [judge(0, (end,), FACTS).delay_seconds for end in ends]
    assert (min(delays), max(delays), len(set(delays))) == (60, 74, 15)


def test_with_fallback_types_the_wait_doubles_with_each_pass_through_them_and_otherwise_with_each_end() -> None:
    facts = replace(FACTS, spec=parse_spec({**FIELDS, "fallback_instance_types": ["ml.m5.2xlarge"]}))
    for failure_class, expected in (
        (FailureClass.THROTTLE, [5, 10, 20, 40, 80, 160]),
        (FailureClass.QUOTA, [0, 120, 0, 240, 0, 480]),
    ):
        ends = attempts(*[(failure_class, "why")] * len(expected))
        waits = [judge(0, ends[:count], facts).delay_seconds for count in range(1, len(expected) + 1)]
        assert all(bound <= wait <= 1.25 * bound for wait, bound in zip(waits, expected, strict=True)), waits


def test_the_ends_of_an_hour_are_those_up_to_the_last_one() -> None:
    rows: list[tuple[list[str | None], int]] = [
        (["03:00", "03:01", "03:59", "04:00"], 4),
        (["01:00", "02:59", "04:00"], 1),
        ([None, "04:00"], 1),
    ]
    for ends, expected in rows:
        history = tuple(
            one.model_copy(update={"ended_at": end and Timestamp(f"2026-05-04T{end}:00Z")})
            for one, end in zip(attempts(*[(None, "")] * len(ends)), ends, strict=True)
        )
        assert ends_within_hour(history) == expected, ends


# --- rules that watch the training ------------------------------------------------------------------

HANG, LOSS = "AlgorithmError: [hang] no", "AlgorithmError: [loss] nan"


def watched(*reasons: str, failure_class: FailureClass = INFRASTRUCTURE, **fields: object) -> Decision:
    """What follows from ends for these reasons, under rules with these fields."""
    spec = parse_spec({**FIELDS, "reruns": {"infrastructure": {"max_reruns": 1}}, "watch": fields})
    return judge(1, attempts(*((failure_class, reason) for reason in reasons)), replace(FACTS, spec=spec))


def test_restarts_by_rules_have_a_budget_of_their_own() -> None:
    rules = {"hang": {"then": "restart"}, "loss": {"then": "restart"}, "max_restarts": 2}
    after = watched(HANG, AGAIN, LOSS, **rules)
    assert (after.next, after.attempt, after.delay_seconds) == (Next.RERUN, 4, 0)
    assert watched(HANG, LOSS, AGAIN, **rules).next is Next.RERUN
    third = watched(HANG, AGAIN, LOSS, HANG, **rules)
    assert (third.lost, third.stops_run) == (True, False)
    assert third.reason == f"replica 1 was lost: watch.max_restarts (2 reruns) is used up: {HANG}"
    assert watched(HANG, AGAIN, AGAIN, **rules).lost, "and so has the class"


def test_a_rule_that_says_stop_stops_the_run_and_only_a_replicas_own_word_is_a_rules() -> None:
    rules = {"hang": {"then": "stop"}, "loss": {"then": "restart"}}
    decision = watched(HANG, **rules)
    assert (decision.next, decision.lost, decision.stops_run) == (Next.FAIL, True, True)
    assert watched(LOSS, **rules).next is Next.RERUN
    assert not watched(HANG, failure_class=SPOT, **rules).stops_run
    assert not watched("AlgorithmError: a.b:c failed: [hang] no, exit code: 80", **rules).stops_run


# --- the end is recorded, and announced -------------------------------------------------------------


def report(harness: ControlHarness, reason: str | None = None, rank: int = 0) -> Outcome:
    """Report the end of the current attempt of a replica: completed, or failed for a reason."""
    status = JobStatus.COMPLETED if reason is None else JobStatus.FAILED
    end = JobEnd(status, status.value, reason or "")
    ended = harness.record(rank).current.ended(end, "2026-01-01T00:00:05.000Z")
    return found(end_attempt(harness.plane, harness.plane.runs.require(RUN).replica(rank), ended))


def test_a_repeated_event_gathers_no_facts_again(harness: ControlHarness) -> None:
    launched(harness, cost_ceiling_usd=100.0)
    harness.cloud.training.fail(harness.job(), AGAIN)
    event = harness.last_event(harness.job())
    harness.react(event)
    before = harness.cloud.calls.counts()
    harness.react(event)
    again = harness.cloud.calls.counts() - before
    # Record and roll-up are read, marks and token are repeated; the fence, the bill and the sum are not.
    assert (again["GetObject"], again["DescribeTrainingJob"], again["ListObjectsV2"]) == (2, 0, 0)


def test_an_end_of_a_replica_without_a_record_does_nothing(harness: ControlHarness) -> None:
    launched(harness)
    run = harness.plan("two", replicas=2)
    assert end_attempt(harness.plane, run.replica(1), harness.record().current) is None
    assert run.documents.record(1).record is None


def test_of_replicas_lost_at_once_the_last_one_stops_the_run(harness: ControlHarness) -> None:
    launched(harness, 3, on_replica_failure="continue", min_replicas=2)
    # The end of rank 1 is decided and announced while the mark of rank 0 is being written.
    rival = Fault(
        "PutObject",
        when=lambda call: call.parameters["Key"] == f"{LOST}0",
        action=lambda: report(harness, BROKEN, 1),
    )
    harness.cloud.calls.inject(rival)
    report(harness, BROKEN)
    assert [found(harness.answer(rank))["next"] for rank in range(2)] == ["stop", "fail"]
    # STOP depends on the others: no record holds it.
    assert [harness.decided(rank)["next"] for rank in range(2)] == ["fail", "fail"]
    assert report(harness, BROKEN, 1).decision.next is Next.STOP, "a loss that is reported again after others"


def test_a_rule_that_says_stop_stops_a_run_that_could_do_without_the_replica(harness: ControlHarness) -> None:
    launched(harness, 4, min_replicas=1, on_replica_failure="continue", watch={"loss": {"then": "stop"}})
    decision = report(harness, "AlgorithmError: [loss] its metric loss is nan").decision
    assert decision.next is Next.STOP
    assert decision.reason.startswith("replica 0 was lost: watch.loss.then is stop: AlgorithmError: [loss]")
    assert harness.decided()["next"] == Next.FAIL, "a record holds what is the replica's alone"


# --- the cost ceiling -----------------------------------------------------------------------------


def preferring(*types: str) -> dict[str, Any]:
    names = [{"instance_type": name} for name in types]
    return {"instance_type": None, "instance_preferences": names, "cost_ceiling_usd": 100.0}


def billed(harness: ControlHarness, seconds: int = 7_200, **fields: Any) -> Outcome:
    """The end of a job that has run for two hours; `seconds`: what its bill says."""
    launched(harness, **fields)
    harness.cloud.training.train(harness.job())
    harness.cloud.clock.advance(7_200)
    harness.cloud.training.set_billable_seconds(harness.job(), seconds)
    harness.cloud.training.fail(harness.job(), AGAIN)
    return report(harness, AGAIN)


def test_a_ceiling_counts_a_type_without_a_price_at_that_of_the_spec(harness: ControlHarness) -> None:
    new = {"instance_type": "ml.p5en.48xlarge", "usd_per_hour": {"ml.p5en.48xlarge": 80.0}}
    assert billed(harness, 3_600, cost_ceiling_usd=79.0, **new).decision.lost


def test_an_attempt_that_reaches_the_ceiling_with_its_own_bill_is_not_rerun(harness: ControlHarness) -> None:
    """Managed spot bills less than the time that has passed."""
    assert billed(harness, 600, cost_ceiling_usd=0.1).decision.next is Next.RERUN
    harness.arm(attempt=2)
    harness.cloud.training.train(harness.job(attempt=2))
    harness.cloud.clock.advance(7_200)
    harness.cloud.training.fail(harness.job(attempt=2), AGAIN)
    decision = report(harness, AGAIN).decision
    assert decision.lost
    assert decision.reason.startswith("replica 0 was lost: the cost ceiling of $0.10 is reached (about $")
    # 600 s and 7,200 s of ml.m5.large at $0.115 an hour
    assert [key for key in harness.keys(SPENT) if "cost" in key] == ["0-1-cost-19167", "0-2-cost-230000"]


def test_the_dearest_type_counts_until_sagemaker_has_named_one(harness: ControlHarness) -> None:
    run = launched(harness, **preferring("ml.m5.large", "ml.p5.48xlarge"))
    assert harness.keys(SPENT) == ["0-1-on-ml.p5.48xlarge"]
    harness.cloud.training.train(harness.job(), "ml.m5.large")
    harness.deliver()
    # Ten hours of an ml.p5.48xlarge would be $633.
    harness.cloud.clock.advance(36_000)
    assert reached_ceiling(run) is None


def test_a_job_that_waits_for_an_instance_costs_nothing_once_an_event_says_so(harness: ControlHarness) -> None:
    run = launched(harness, 2, cost_ceiling_usd=1.0)
    harness.cloud.clock.advance(36_000)
    # Ten hours of two ml.m5.large are $2.30, if they have them.
    assert reached_ceiling(run) is not None
    harness.deliver()
    assert reached_ceiling(run) is None
    harness.cloud.training.train(harness.job())
    harness.deliver()
    harness.cloud.clock.advance(36_000)
    assert reached_ceiling(run) == "the cost ceiling of $1.00 is reached (about $1.15 spent, at prices of us-west-2)"


def test_the_bill_is_at_the_price_of_the_type_that_sagemaker_chose(harness: ControlHarness) -> None:
    """Also where no event has told of it."""
    billed(harness, **preferring("ml.m5.large", "ml.m5.xlarge"))
    assert "0-1-cost-230000" in harness.keys(SPENT)


def test_a_job_that_cannot_be_found_and_was_never_seen_has_cost_nothing(harness: ControlHarness) -> None:
    run = harness.plan(cost_ceiling_usd=100.0)
    harness.cloud.calls.inject(server_error("CreateTrainingJob"))
    with pytest.raises(ClientError):
        harness.arm()
    assert with_bill(run.replica(0), harness.record().current).billable_seconds == 0


def test_a_job_whose_bill_is_not_to_be_had_counts_by_its_times(row: Row) -> None:
    """The look lags behind the event of its end, or the job was deleted: three hours of an ml.m5.large all the same."""
    for name in ("the look lags", "the job is gone"):
        with row(name) as harness:
            launched(harness, cost_ceiling_usd=0.3)
            job, training = harness.job(), harness.cloud.training
            training.train(job)
            harness.deliver()
            harness.cloud.clock.advance(3 * 3_600)
            training.lag(job)
            training.fail(job, AGAIN)
            if name == "the look lags":
                harness.deliver()
            else:
                harness.cloud.notifications.drain()
                training.delete(job)
                harness.arm()
            [cost] = [key for key in harness.keys(SPENT) if "cost" in key]
            assert 345_000 <= int(cost.rpartition("-")[2]) < 350_000
            assert "the cost ceiling of $0.30 is reached" in found(harness.record().decision).reason
