"""Elastic runs: what is scaled meets launches, ends, stops and other requests, and functions end in the middle."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract import timestamps
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.contract.spec.run_limits import Timer
from muster.control.plan import make_plan
from muster.control.runtime import parallel
from muster.control.stop import StopRequest, stop_run
from muster.control.timer import fire
from muster.options.elastic.contract.seats import Seats, seats_key
from tests.memory import AwsError, Call, Fault
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.control_steps import CONTINUED, FunctionEndedError, Row, create_job, finished, found
from tests.support.elastic_runs import ElasticRun

BROKEN = "AlgorithmError: ExitCode 1"


class OneByOne(Executor):
    """In place of threads: a function ends at a call that is the same every time."""

    def submit(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(function(*given, **named))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def run(harness: ControlHarness) -> ElasticRun:
    return ElasticRun(harness)


# --- a function ends in the middle ------------------------------------------------------------------


def scale_up(run: ElasticRun) -> object:
    return run.asked(4, "up")


def scale_down(run: ElasticRun) -> object:
    run.harness.cloud.training.stop_seconds = 4
    return run.asked(1, "down")


def call_again(run: ElasticRun) -> object:
    """A rank's workflow calls attempt, or after an error once more."""
    return run.arm(3)


def complete_first(run: ElasticRun) -> object:
    if run.harness.job() in run.harness.cloud.training.names("InProgress"):
        run.harness.cloud.training.complete(run.harness.job())
        run.event = run.harness.last_event(run.harness.job())
    return run.harness.react(run.event)


def lose_quorum(run: ElasticRun) -> object:
    return stop_run(run.harness.plane, StopRequest(run=RUN, reason="why"), budget())


def all_train(run: ElasticRun) -> bool:
    return len(run.jobs) == 4 == len(run.harness.cloud.training.names())


def one_leaves(run: ElasticRun) -> bool:
    run.stopped()
    run.scale(4)
    decisions = [run.harness.record(rank).decision for rank in range(4)]
    return run.attempts == {0: 1, 1: 2, 2: 1, 3: 1} and decisions == [None] * 4


def is_held(run: ElasticRun) -> bool:
    return 3 in run.tokens and run.parked(3).token == run.tokens[3] and all_train(_scaled(run))


def _scaled(run: ElasticRun) -> ElasticRun:
    run.scale(4)
    return run


def parked_have_ended(run: ElasticRun) -> bool:
    return 2 not in run.tokens and 3 not in run.tokens


STEPS: dict[str, tuple[Callable[[ElasticRun], object], Callable[[ElasticRun], bool]]] = {
    "scale up": (scale_up, all_train),
    "scale down": (scale_down, one_leaves),
    "an attempt that is held": (call_again, is_held),
    "the end of the first replica": (complete_first, parked_have_ended),
    "stop": (lose_quorum, parked_have_ended),
}
FAULTS: dict[str, Callable[[int], Fault]] = {
    "the function ends": lambda skip: Fault("*", FunctionEndedError(), after_effect=True, skip=skip),
    "the answer is lost": lambda skip: Fault(
        "*", AwsError("InternalFailure", status=503), after_effect=True, when=_writes, skip=skip
    ),
}


def _writes(call: Call) -> bool:
    return not call.operation.startswith(("Describe", "Get", "Head", "List"))


@pytest.mark.parametrize("name", STEPS)
def test_what_is_cut_off_anywhere_is_completed_by_the_next_call(
    name: str, subtests: pytest.Subtests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", lambda **_: OneByOne())
    for fault, of_call in FAULTS.items():
        with subtests.test(fault):
            cuts = sum(1 for _ in _cut(name, of_call))
            assert cuts >= 1


def _cut(name: str, of_call: Callable[[int], Fault]) -> Iterator[None]:
    call, holds = STEPS[name]
    for cut in range(100):
        fault = of_call(cut)
        with ControlHarness().installed() as harness:
            run = ElasticRun(harness)
            run.train()
            harness.cloud.calls.inject(fault)
            try:
                call(run)
            except (FunctionEndedError, ClientError):
                assert fault.fired
            harness.cloud.calls.reset()
            call(run)
            run.go_on()
            assert holds(run), f"cut off at call {cut}"
        if not fault.fired:
            return
        yield


# --- scaling meets launches and ends ----------------------------------------------------------------


def test_a_seat_that_is_closed_while_its_job_is_created_is_stopped_and_parked(run: ElasticRun) -> None:
    harness = run.harness
    run.asked(3)
    harness.cloud.calls.inject(Fault("CreateTrainingJob", action=lambda: run.asked(2)))
    run.arm(2)
    assert run.jobs == ["r0-a1", "r1-a1"], "no event was seen"
    run.stopped()
    assert (run.attempts[2], run.parked(2).attempt, harness.record(2).current.failure_class) == (
        *(2, 2),
        "stopped-by-muster",
    )


def test_a_seat_that_is_opened_while_its_token_is_stored_is_not_forgotten(harness: ControlHarness) -> None:
    """The token is stored when scale has looked for it already, or before it is stored scale has opened the seat."""
    for operation, skip in (("PutObject", 0), ("GetObject", 2)):
        with ControlHarness().installed() as other:
            run = ElasticRun(other)
            other.cloud.calls.inject(Fault(operation, action=lambda run=run: run.asked(4), skip=skip))
            run.arm(2)
            run.go_on()
            assert "r2-a1" in run.jobs


def test_a_fence_that_is_raised_while_a_token_is_stored_ends_the_seat(run: ElasticRun) -> None:
    """Stop has looked for tokens before this one was there."""
    fence = Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="", at="t")
    run.harness.cloud.calls.inject(Fault("PutObject", action=lambda: run.run.documents.raise_fence(fence)))
    assert run.arm(3) == "refused: the run is stopping"


def test_a_late_call_does_not_replace_a_later_token(run: ElasticRun) -> None:
    late = run.harness.request(3)
    run.arm(3)
    run.harness.attempt(late)
    assert run.parked(3).token == run.tokens[3]


def test_back_and_forth_while_jobs_end_costs_no_budget_and_no_seat(run: ElasticRun) -> None:
    run.scale(4)
    run.train()
    for replicas in (2, 4, 1, 3, 4):
        run.scale(replicas)
    run.stopped()
    assert (run.seats.wanted, len(run.jobs)) == (4, 4)
    assert run.harness.keys(f"control/{RUN}/lost/") == []
    assert {attempt.failure_class for rank in range(4) for attempt in run.harness.record(rank).attempts[:-1]} == {
        "stopped-by-muster"
    }


def test_requests_that_come_twice_or_meet_are_carried_out_once_each(run: ElasticRun) -> None:
    harness = run.harness

    def others() -> None:
        run.asked(4, "a")
        run.asked(3, "b")

    # One copy of the first request is late by both.
    harness.cloud.calls.inject(Fault("PutObject", action=others, when=lambda call: "seats" in call.parameters["Key"]))
    assert [run.scale(4, "a"), run.scale(4, "a"), run.scale(3, "b")] == ["scaled"] * 3
    assert [(one.by, one.before, one.replicas) for one in run.seats.scalings] == [("a", 2, 4), ("b", 4, 3)]
    assert len({detail["id"] for detail in harness.cloud.events.of("Run Scaled")}) == 2
    assert run.scale(3, "c") == "as many as were wanted"
    assert run.jobs == ["r0-a1", "r1-a1", "r2-a1"]


def test_a_request_that_comes_again_after_a_newer_one_undoes_nothing(run: ElasticRun) -> None:
    """One that was carried out, one that changed nothing, and one that was refused, all in the same second."""
    again = {"down": (1, "scaled"), "same": (1, "as many as were wanted"), "refused": (9, "refused: replicas: found 9")}
    run.train()
    for by, (replicas, answer) in again.items():
        assert run.scale(replicas, by).startswith(answer)
    assert run.scale(4, "up") == "scaled"
    run.train()
    for by, (replicas, answer) in again.items():
        assert run.scale(replicas, by).startswith(answer)
    assert (run.seats.wanted, run.seats.revision, len(run.harness.cloud.training.names("InProgress"))) == (4, 3, 3)


def test_a_request_that_was_refused_is_not_carried_out_later(harness: ControlHarness) -> None:
    """Its second copy comes when what stood against it is gone."""
    types = {"instance_type": "ml.c5.xlarge", "usd_per_hour": {"ml.c5.xlarge": 4}}
    run = ElasticRun(harness, elastic={"budget_usd_per_hour": 8}, **types)
    refused = "refused: elastic.budget_usd_per_hour pays for no more than the 2 replicas that are wanted"
    assert (run.scale(4, "up"), run.scale(1), run.scale(4, "up")) == (refused, "scaled", refused)
    assert run.seats.wanted == 1


def test_a_request_that_comes_later_than_a_newer_one_is_refused(run: ElasticRun) -> None:
    now = run.harness.cloud.clock.now().replace(microsecond=0)

    def at(seconds: int) -> str:
        return f"{now + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"

    newest = timestamps.text(now - timedelta(seconds=5))
    late = f"refused: a newer request, made at {newest}, was answered first: 2 are wanted"
    assert run.scale(2, "same", at(-5)) == "as many as were wanted"
    assert (run.scale(4, "late", at(-6)), run.seats.wanted) == (late, 2)
    # EventBridge's times have whole seconds. What is refused is not newer, nor is a time that is still to come.
    assert run.scale(9, "refused", at(0)).startswith("refused: replicas: found 9")
    assert (run.scale(3, "same second", at(-5)), run.scale(4, "far ahead", at(10**6))) == ("scaled", "scaled")
    assert (run.scale(3, "now", at(0)), run.seats.wanted) == ("scaled", 3)
    assert {detail["by"] for detail in run.harness.cloud.events.of("Scale Refused")} == {"late", "refused"}


def test_of_two_requests_that_meet_the_second_closes_what_the_first_has_opened(harness: ControlHarness) -> None:
    """It found as many open as it asks for, and then the other one opens more."""
    run = ElasticRun(harness, replicas={"min": 1, "start": 4, "max": 4})
    for rank in (0, 3):
        harness.cloud.training.train(harness.job(rank))
    run.go_on()
    run.scale(2)
    run.stopped()
    assert run.jobs == ["r0-a1", "r3-a1"]
    meets = Fault("ListObjectsV2", action=lambda: run.asked(4), when=lambda call: "lost" in call.parameters["Prefix"])
    harness.cloud.calls.inject(meets)
    assert (run.scale(2), meets.fired) == ("scaled", True)
    run.stopped()
    assert run.jobs == ["r0-a1", "r3-a1"]


def test_a_late_call_that_closes_a_seat_stops_no_later_attempt(run: ElasticRun) -> None:
    """Scale has marked the record when another call stops the job, and the seat is opened and launched again."""
    run.train()

    def meanwhile() -> None:
        run.asked(1)
        run.stopped()
        run.scale(2)

    marks = Fault("GetObject", action=meanwhile, when=lambda call: "rollup/0001" in call.parameters["Key"])
    run.harness.cloud.calls.inject(marks)
    run.asked(1)
    assert marks.fired
    run.stopped()
    assert (run.attempts[1], run.harness.record(1).decision) == (2, None)
    assert "r1-a2" in run.jobs


def test_the_late_job_of_a_parked_seat_is_stopped(run: ElasticRun) -> None:
    harness = run.harness
    refusal = AwsError("ResourceLimitExceeded")
    harness.cloud.calls.inject(Fault("CreateTrainingJob", refusal, action=lambda: run.asked(2)))
    run.scale(3)
    create_job(harness, harness.job(2))
    run.go_on()
    assert harness.cloud.training.names("Stopping") == [harness.job(2)]
    run.stopped()
    assert 2 in run.tokens


def test_a_leaver_that_dies_is_parked_like_any_other(run: ElasticRun) -> None:
    run.train()
    run.scale(1)
    run.harness.cloud.training.fail(run.harness.job(1), BROKEN)
    run.go_on()
    assert (run.parked(1).attempt, run.harness.record(1).decision.parked) == (2, True)
    assert run.harness.emitted().count("Replica Parked") == 1


def test_a_re_arm_after_lost_news_launches_the_seat(run: ElasticRun) -> None:
    """Scale has ended for good between the seats and the tokens: the time-out of the wait finds the seat open."""
    run.harness.cloud.calls.inject(Fault("PutEvents", FunctionEndedError()))
    with pytest.raises(FunctionEndedError):
        run.asked(4)
    run.harness.cloud.workflow.expire(run.tokens[3])
    run.arm(3)
    run.go_on()
    assert run.jobs == ["r0-a1", "r1-a1", "r3-a1"]


# --- the end of a run -------------------------------------------------------------------------------


def test_parked_seats_end_with_the_run_however_it_ends(row: Row) -> None:
    for name, end in {"quorum": lose_quorum, "deadline": _deadline, "success": complete_first}.items():
        with row(name) as harness:
            run = ElasticRun(harness, deadline_seconds=600)
            run.train()
            end(run)
            run.go_on()
            run.stopped()
            assert {2, 3} & run.tokens.keys() == set()
            assert "refused" in run.scale(4)
            outcomes = [replica.outcome for replica in finished(harness).result.replicas]
            assert outcomes[2:] == [ReplicaOutcome.PARKED] * 2
            assert harness.cloud.calls.counts()["CreateTrainingJob"] == 2


def _deadline(run: ElasticRun) -> object:
    return fire(run.harness.plane, run.run, Timer.DEADLINE, budget())


def test_a_seat_that_is_opened_too_late_is_not_launched(run: ElasticRun) -> None:
    """The first replica ends between the look at the seats and the launch, or the fence is raised."""
    run.train()
    run.asked(3)
    complete_first(run)
    run.go_on()
    assert run.states[2]["reason"] == "replica 0 has trained to the end"
    run.complete(1)
    result = finished(run.harness).result
    assert (result.verdict, result.replicas[2].outcome) == (Verdict.SUCCEEDED, ReplicaOutcome.PARKED)


def test_scaling_meets_a_fence(run: ElasticRun) -> None:
    fence = Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="", at="t")
    raises = Fault("PutObject", action=lambda: run.run.documents.raise_fence(fence))
    run.harness.cloud.calls.inject(raises)
    run.scale(4)
    assert {run.states[rank]["reason"] for rank in (2, 3)} == {"the run is stopping"}
    assert run.jobs == ["r0-a1", "r1-a1"]


def test_a_lost_replica_counts_among_the_open_seats_and_another_takes_its_place(harness: ControlHarness) -> None:
    run = ElasticRun(harness, replicas={"min": 1, "start": 2, "max": 4})
    run.fail(1, BROKEN)
    assert run.states[1]["next"] == "fail"
    assert run.scale(2) == "scaled"
    assert run.jobs == ["r0-a1", "r2-a1"]
    run.fail(0, BROKEN)
    run.fail(2, BROKEN)
    assert found(run.run.documents.fence()).cause is FenceCause.QUORUM_LOST


def test_a_seat_that_is_closed_while_another_is_lost_stops_a_run_with_too_few(harness: ControlHarness) -> None:
    """The loss counts the seats before they are changed; scale has counted the losses before."""
    run = ElasticRun(harness, replicas={"min": 2, "start": 3, "max": 4})
    run.train()
    _lose_during_scale(run, 0)
    run.scale(2)
    assert (run.jobs, run.run.documents.fence()) == (["r1-a1"], None)
    run.stopped()
    fence = found(run.run.documents.fence())
    assert (fence.cause, fence.reason) == (
        FenceCause.QUORUM_LOST,
        "all seats but 1 are closed or lost; replicas.min is 2",
    )


def test_a_seat_that_is_closed_while_its_replica_is_lost_stays_lost(harness: ControlHarness) -> None:
    run = ElasticRun(harness, replicas={"min": 1, "start": 3, "max": 3})
    run.train()
    _lose_during_scale(run, 2)
    run.scale(1)
    run.stopped()
    assert run.scale(3) == "scaled"
    assert (run.seats.open, run.jobs) == ("0-1", ["r0-a1", "r1-a2"])


def _lose_during_scale(run: ElasticRun, rank: int) -> None:
    """The next scaling is about to write the seats when a replica is lost."""
    loses = Fault(
        "PutObject", action=lambda: run.fail(rank, BROKEN), when=lambda call: "seats" in call.parameters["Key"]
    )
    run.harness.cloud.calls.inject(loses)


# --- no capacity ------------------------------------------------------------------------------------


def test_a_seat_without_capacity_is_parked_and_looks_again(harness: ControlHarness) -> None:
    section = {"park_after_seconds": 60, "retry_parked_seconds": 600}
    run = ElasticRun(harness, elastic=section, reruns={"capacity": {"max_reruns": 0}})
    run.fail(1)
    assert run.states[1]["next"] == "rerun"
    assert 600 <= run.states[1]["rearm_seconds"] <= 750
    assert (run.parked(1).until is not None, run.jobs) == (True, ["r0-a1"])
    run.scale(3)
    assert 1 in run.tokens, "no other request wakes it"
    harness.cloud.clock.advance(run.states[1]["rearm_seconds"])
    harness.cloud.workflow.expire(run.tokens[1])
    assert run.arm(1) == "created"
    assert harness.keys(f"control/{RUN}/lost/") == []


def test_a_seat_looks_as_its_budget_says_until_it_is_parked(harness: ControlHarness) -> None:
    capacity = {"max_reruns": 9, "delay_seconds": 100, "max_delay_seconds": 100}
    run = ElasticRun(harness, elastic={"park_after_seconds": 250}, reruns={"capacity": capacity})
    states = []
    for _ in range(4):
        run.fail(1)
        states.append("rearm_seconds" in run.states[1])
    assert states == [False, False, False, True]


def test_too_few_seats_with_capacity_stop_the_run_where_the_spec_says_so(row: Row) -> None:
    for below_min, waits in (("wait", True), ("stop", False)):
        with row(below_min) as harness:
            section = {"park_after_seconds": 0, "below_min": below_min}
            span = {"min": 2, "start": 3, "max": 4}
            run = ElasticRun(harness, replicas=span, elastic=section, reruns={"capacity": {"max_reruns": 0}})
            run.fail(0)
            assert run.run.documents.fence() is None
            run.fail(1)
            assert (run.run.documents.fence() is None) is waits


def test_a_continuation_has_the_seats_of_the_run_before(harness: ControlHarness) -> None:
    run = ElasticRun(harness, replicas={"min": 2, "start": 2, "max": 4}, **CONTINUED)
    run.scale(3)
    run.fail(0, BROKEN)
    run.fail(1, BROKEN)
    run.stopped()
    name = found(finished(harness).continued_by)
    request = harness.plan_request(name, resume_from=RUN, replicas={"min": 2, "start": 2, "max": 4})
    make_plan(harness.plane, harness.deployment, request)
    seats = found(harness.plane.store.document(Seats, seats_key(name)))
    assert (seats.wanted, seats.open) == (3, "0-2")
