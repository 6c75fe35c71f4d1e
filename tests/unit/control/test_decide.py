from dataclasses import replace

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.names import ATTEMPT_MAX
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Decision, Next, Record
from muster.contract.spec.retry_budget import Budget
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.timestamps import Timestamp
from muster.control.decide import Facts, can_do_without, decide_end, ends_within_hour, judge

SPEC = parse_spec({"replicas": 4, "trainer": "a.b:c", "reruns": {"spot": {"max_reruns": 2, "delay_seconds": 10}}})


def attempts(*classes: FailureClass | None, first: int = 1) -> tuple[Attempt, ...]:
    """Attempts that ended in `classes`."""
    return tuple(
        Attempt(attempt=number, job=f"j{number}", failure_class=failure_class, reason="why")
        for number, failure_class in enumerate(classes, start=first)
    )


def facts(*, stopping: bool = False, ceiling: str | None = None) -> Facts:
    return Facts(SPEC, stopping, ceiling, Timestamp("2026-05-04T03:00:00.000Z"))


def test_success_is_done_even_while_the_run_is_stopping():
    assert judge(0, attempts(None), facts(stopping=True)) == Decision(next=Next.DONE, attempt=1)


def test_nothing_is_rerun_while_the_run_is_stopping():
    decision = judge(0, attempts(FailureClass.SPOT), facts(stopping=True))
    assert (decision.next, decision.lost) == (Next.FAIL, False)


def test_each_class_spends_its_own_budget():
    spot, infrastructure = FailureClass.SPOT, FailureClass.INFRASTRUCTURE
    decision = judge(0, attempts(spot, infrastructure, infrastructure, spot), facts())
    assert (decision.next, decision.attempt, decision.reason) == (Next.RERUN, 5, "spot")
    assert 20 <= decision.delay_seconds <= 25
    assert judge(0, attempts(spot, spot, spot), facts()).lost


def test_user_code_is_not_rerun_by_default():
    decision = judge(3, attempts(FailureClass.USER_CODE), facts())
    reason = "replica 3 was lost: its retry budget for user-code (0 reruns) is used up: why"
    assert decision == Decision(next=Next.FAIL, attempt=1, lost=True, reason=reason)


def test_nothing_is_rerun_beyond_the_cost_ceiling():
    decision = judge(1, attempts(FailureClass.SPOT), facts(ceiling="the cost ceiling of $1.00 is reached"))
    assert decision.lost
    assert decision.reason == "replica 1 was lost: the cost ceiling of $1.00 is reached: why"
    assert judge(1, attempts(None), facts(ceiling="reached")).next is Next.DONE


def test_attempts_end_where_names_end():
    assert judge(0, attempts(FailureClass.SPOT, first=ATTEMPT_MAX), facts()).lost


@pytest.mark.parametrize(
    ("policy", "min_replicas", "lost", "expected"),
    [
        ("terminate", None, 1, False),
        ("continue", 2, 1, True),
        ("continue", 2, 2, True),
        ("continue", 2, 3, False),
        ("continue", None, 1, False),
    ],
)
def test_what_a_lost_replica_means(policy, min_replicas, lost, expected):
    fields = {"replicas": 4, "trainer": "a.b:c", "on_replica_failure": policy}
    spec = parse_spec({**fields, **({"min_replicas": min_replicas} if min_replicas else {})})
    assert can_do_without(spec, lost) is expected


def test_an_end_is_decided_once_and_only_of_the_current_attempt():
    [running] = attempts(None)
    record = Record(run="run", rank=0, token="t", armed_at="a", attempts=(running,))
    ended = running.model_copy(update={"failure_class": FailureClass.SPOT, "ended_at": "2026-05-04T02:59:00.000Z"})
    after = decide_end(record, ended, facts())
    assert after is not None
    assert after.decision is not None
    assert after.decision.decided_at == "2026-05-04T03:00:00.000Z"
    assert after.current.failure_class is FailureClass.SPOT
    assert decide_end(after, ended, facts()) is None
    assert decide_end(None, ended, facts()) is None
    assert decide_end(record, ended.model_copy(update={"attempt": 2}), facts()) is None


def test_replicas_that_end_together_are_not_rerun_together():
    def waits(job: str) -> int:
        current = Attempt(attempt=1, job=job, failure_class=FailureClass.CAPACITY)
        return judge(0, (current,), facts()).delay_seconds

    found = [waits(f"muster-run-r{rank}-a1") for rank in range(200)]
    assert (min(found), max(found)) == (60, 74)
    assert len(set(found)) == 15
    assert waits("muster-run-r7-a1") == found[7]


def test_the_wait_doubles_up_to_its_bound():
    budget = Budget(max_reruns=100, delay_seconds=60, max_delay_seconds=1_000)
    assert [budget.delay(spent) for spent in (0, 1, 2, 3, 4, 5, 900)] == [60, 120, 240, 480, 960, 1_000, 1_000]
    assert Budget(max_reruns=5).delay(3) == 0


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (["03:00"], 1),
        (["03:00", "03:01", "03:59", "04:00"], 4),
        (["01:00", "02:59", "03:01", "04:00"], 2),
        ([None, "04:00"], 1),
    ],
)
def test_the_ends_of_an_hour_are_those_up_to_the_last_one(ends, expected):
    history = tuple(
        Attempt(attempt=number, job="j", launched_at="t", ended_at=end and f"2026-05-04T{end}:00.000Z")
        for number, end in enumerate(ends, start=1)
    )
    assert ends_within_hour(history) == expected


# --- rules that watch the training ------------------------------------------------------------------

LOST_INSTANCE, HANG, LOSS = "InternalServerError: again", "AlgorithmError: [hang] no", "AlgorithmError: [loss] nan"


def ended_by(*reasons: str) -> tuple[Attempt, ...]:
    """Attempts that ended for these reasons, all of them in the class infrastructure."""
    return tuple(
        Attempt(attempt=number, job=f"j{number}", failure_class=FailureClass.INFRASTRUCTURE, reason=reason)
        for number, reason in enumerate(reasons, start=1)
    )


def watching(**fields: object) -> Facts:
    infrastructure = {"reruns": {"infrastructure": {"max_reruns": 1}}}
    return replace(facts(), spec=parse_spec({"replicas": 4, "trainer": "a.b:c", **infrastructure, "watch": fields}))


def test_restarts_by_rules_have_a_budget_of_their_own():
    rules = watching(hang={"then": "restart"}, loss={"then": "restart"}, max_restarts=2)
    after = judge(2, ended_by(HANG, LOST_INSTANCE, LOSS), rules)
    assert (after.next, after.attempt, after.delay_seconds) == (Next.RERUN, 4, 0)
    assert judge(2, ended_by(HANG, LOSS, LOST_INSTANCE), rules).next is Next.RERUN
    third = judge(2, ended_by(HANG, LOST_INSTANCE, LOSS, HANG), rules)
    assert (third.lost, third.stops_run) == (True, False)
    assert third.reason == f"replica 2 was lost: watch.max_restarts (2 reruns) is used up: {HANG}"
    assert judge(2, ended_by(HANG, LOST_INSTANCE, LOST_INSTANCE), rules).lost, "and so has the class"


def test_a_rule_that_says_stop_stops_the_run_with_its_first_replica():
    rules = watching(hang={"then": "stop"}, loss={"then": "restart"})
    decision = judge(1, ended_by(HANG), rules)
    assert (decision.next, decision.lost, decision.stops_run) == (Next.FAIL, True, True)
    assert decision.reason == f"replica 1 was lost: watch.hang.then is stop: {HANG}"
    assert judge(1, ended_by(LOSS), rules).next is Next.RERUN


def test_only_a_replicas_own_word_is_a_rules():
    rules = watching(hang={"then": "stop"})
    spot = ended_by(HANG)[0].model_copy(update={"failure_class": FailureClass.SPOT})
    assert not judge(1, (spot,), rules).stops_run
    assert not judge(1, ended_by("AlgorithmError: a.b:c failed: [hang] no, exit code: 80"), rules).stops_run
