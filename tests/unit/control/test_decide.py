import pytest

from muster.contract.aws.failures import FailureClass
from muster.contract.names import ATTEMPT_MAX
from muster.contract.run.record import Attempt, Decision, Next
from muster.contract.spec.spec import Budget
from muster.contract.spec.spec_reader import parse_spec
from muster.control.decide import Lost, ends_within_hour, judge, weigh_loss

SPEC = parse_spec({"replicas": 4, "trainer": "a.b:c", "reruns": {"spot": {"max_reruns": 2, "delay_seconds": 10}}})


def attempts(*classes: FailureClass | None, first: int = 1) -> tuple[Attempt, ...]:
    """Attempts that ended in `classes`; the last one is the current one and not classified yet."""
    return tuple(
        Attempt(attempt=number, job=f"j{number}", launched_at="t", failure_class=failure_class)
        for number, failure_class in enumerate((*classes, None), start=first)
    )


def test_success_is_done_even_while_the_run_is_stopping():
    assert judge(SPEC, attempts(), None, stopping=True) == Decision(next=Next.DONE, attempt=1)


def test_nothing_is_rerun_while_the_run_is_stopping():
    decision = judge(SPEC, attempts(), FailureClass.SPOT, stopping=True)
    assert isinstance(decision, Decision)
    assert decision.next is Next.FAIL


def test_each_class_spends_its_own_budget():
    spot, infrastructure = FailureClass.SPOT, FailureClass.INFRASTRUCTURE
    history = attempts(spot, infrastructure, infrastructure)
    decision = judge(SPEC, history, spot, stopping=False)
    assert isinstance(decision, Decision)
    assert (decision.next, decision.attempt, decision.reason) == (Next.RERUN, 5, "spot")
    assert 20 <= decision.delay_seconds <= 25
    assert isinstance(judge(SPEC, attempts(spot, spot), spot, stopping=False), Lost)


def test_user_code_is_not_rerun_by_default():
    lost = judge(SPEC, attempts(), FailureClass.USER_CODE, stopping=False)
    assert lost == Lost("user-code (0 reruns allowed for user-code)")


def test_attempts_end_where_names_end():
    assert isinstance(judge(SPEC, attempts(first=ATTEMPT_MAX), FailureClass.SPOT, stopping=False), Lost)


@pytest.mark.parametrize(
    ("policy", "min_replicas", "lost", "expected"),
    [
        ("terminate", None, 1, Next.STOP),
        ("continue", 2, 1, Next.FAIL),
        ("continue", 2, 2, Next.FAIL),
        ("continue", 2, 3, Next.STOP),
        ("continue", None, 1, Next.STOP),
    ],
)
def test_what_a_lost_replica_means(policy, min_replicas, lost, expected):
    fields = {"replicas": 4, "trainer": "a.b:c", "on_replica_failure": policy}
    spec = parse_spec({**fields, **({"min_replicas": min_replicas} if min_replicas else {})})
    assert weigh_loss(spec, 1, Lost("why"), lost) == Decision(next=expected, attempt=1, reason="why")


def test_replicas_that_end_together_do_not_come_back_together():
    def waits(job: str) -> int:
        current = Attempt(attempt=1, job=job, launched_at="t")
        decision = judge(SPEC, (current,), FailureClass.CAPACITY, stopping=False)
        assert isinstance(decision, Decision)
        return decision.delay_seconds

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
