"""Which runs get a continuation. No run that was cancelled does, whatever fence stands and whatever the functions do:
status, list, page and result agree that it was cancelled."""

import json
from collections.abc import Iterator
from functools import partial

import pytest
from botocore.exceptions import ClientError

from muster.client.runs.observer import Observer
from muster.client.runs.run_list import RunFilter, list_runs
from muster.client.runs.run_state import RunState
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import SpecError
from muster.contract.run.attempt import Attempt
from muster.contract.run.fence import FenceCause
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.run_queue import QUEUE_KEY, Queue
from muster.control.active_run import ActiveRun
from muster.control.clear_up import ExecutionEnded
from muster.control.cost_ceiling import reached_ceiling
from muster.control.plan import PlanRequest, make_plan
from muster.control.settle import UnfinishedError
from muster.control.stop import StopRequest, stop_run
from tests.memory import AwsError, Fault, throttle
from tests.memory.harness import RUN, SPEC, ControlHarness, budget
from tests.support.control_steps import (
    AGAIN,
    CONTINUED,
    QUORUM_LOST,
    Row,
    cleared,
    complete,
    cut_off,
    fail,
    finished,
    found,
    launched,
    swept,
)
from tests.support.memory_client import client_of

NEXT = f"{RUN}-x2"


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    """A stack with a queue."""
    with ControlHarness(cap=2).installed() as harness:
        yield harness


def stop_and_clear(harness: ControlHarness) -> None:
    """A user stops the execution, and the event of that arrives."""
    cleared(harness, cut_off(harness, "ABORTED"))


def lose(harness: ControlHarness, replicas: int = 1) -> ActiveRun:
    """A run with a continuation policy, whose replica 0 is lost."""
    harness.cloud.training.stop_seconds = 4
    run = launched(harness, replicas, **CONTINUED)
    fail(harness)
    return run


def plan_next(harness: ControlHarness, run: str = NEXT) -> None:
    """The first task of the continuation, with the input that its execution has."""
    arn = harness.cloud.workflow.execution_arn(run)
    execution = harness.cloud.client("stepfunctions").describe_execution(executionArn=arn)
    started, document = execution["startDate"].isoformat(), json.loads(execution["input"])
    request = PlanRequest(execution_name=run, execution_arn=arn, started_at=started, input=document)
    make_plan(harness.plane, harness.deployment, request)


def assert_all_agree(harness: ControlHarness, state: RunState) -> Result:
    """The result, which is also what every look at the run shows."""
    client, result = client_of(harness.cloud), found(harness.result())
    assert Observer(client, RUN).look().state is state
    [listed] = [one for one in list_runs(client, RunFilter(), 50) if one.run == RUN]
    assert listed.state is state
    assert [one.run for one in list_runs(client, RunFilter(state), 50) if one.run == RUN] == [RUN]
    page = found(harness.plane.store.get(f"control/{RUN}/report.html"))
    shown = {RunState.STOPPED: b"The run was stopped", RunState.FAILED: b"The run failed"}
    assert shown[state] in page.body
    assert result.verdict.value == state.value
    return result


# --- a run that is stopping already ---------------------------------------------------------------


def test_a_cancelled_run_is_not_continued_whatever_fence_stood_first(row: Row) -> None:
    for cause in FenceCause:
        with row(cause, cap=2) as harness:
            run = lose(harness, replicas=2)
            verdict = Verdict.STOPPED if cause is FenceCause.EXECUTION_STOPPED else Verdict.FAILED
            run.documents.raise_fence(QUORUM_LOST.model_copy(update={"cause": cause, "verdict": verdict}))
            stop_and_clear(harness)
            result = assert_all_agree(harness, RunState.STOPPED)
            both = f"the execution was stopped while the run was stopping: {QUORUM_LOST.reason}"
            assert result.reason == (QUORUM_LOST.reason if cause is FenceCause.EXECUTION_STOPPED else both)
            assert harness.executions.live_runs() == set()
            assert harness.emitted()[-1] == "Run Stopped"
            assert harness.cloud.training.names("InProgress", "Stopping") == []


# --- a run that its workflow is settling ----------------------------------------------------------


def cancel_during_settlement(harness: ControlHarness) -> ExecutionEnded:
    """The execution is stopped while its last task writes the result; the event of that comes later."""
    result, ended = lose(harness).documents.layout.result, list[ExecutionEnded]()
    written = Fault(
        "PutObject",
        action=lambda: ended.append(cut_off(harness, "ABORTED")),
        when=lambda call: call.parameters["Key"] == result,
    )
    harness.cloud.calls.inject(written)
    finished(harness)
    cleared(harness, ended[0])
    return ended[0]


def test_a_cancel_before_the_policy_looks_starts_no_continuation(harness: ControlHarness) -> None:
    cancel_during_settlement(harness)
    assert_all_agree(harness, RunState.FAILED)
    assert [call["name"] for call in harness.cloud.calls.of("StartExecution")] == [RUN]


def test_a_continuation_whose_start_meets_the_cancel_is_refused(harness: ControlHarness) -> None:
    """The cancel is cleared up while StartExecution is on its way, so there is no execution to be stopped."""
    lose(harness)
    harness.cloud.calls.inject(Fault("StartExecution", action=lambda: stop_and_clear(harness)))
    finished(harness)
    assert harness.executions.live_runs() == {NEXT}
    with pytest.raises(SpecError, match=f"{RUN} was cancelled while its continuation policy started {NEXT}"):
        plan_next(harness)
    assert harness.keys(f"control/{NEXT}/") == []
    assert "continued_by.json" not in harness.keys(f"control/{RUN}/")
    assert_all_agree(harness, RunState.FAILED)


def test_a_continuation_that_was_just_started_is_stopped_by_the_cancel(row: Row) -> None:
    def cancel(harness: ControlHarness, *, planned: bool) -> None:
        if planned:
            plan_next(harness)
        stop_and_clear(harness)

    for planned in (False, True):
        with row(f"planned: {planned}", cap=2) as harness:
            lose(harness)
            started = Fault("PutEvents", action=partial(cancel, harness, planned=planned), skip=1)
            harness.cloud.calls.inject(started)
            finished(harness)
            assert (started.fired, harness.executions.live_runs()) == (1, set())
            arn = harness.cloud.workflow.execution_arn(NEXT)
            execution = harness.cloud.client("stepfunctions").describe_execution(executionArn=arn)
            assert (execution["status"], RUN in execution["cause"]) == ("ABORTED", True)


def test_a_cancel_whose_event_is_lost_after_the_end_was_complete_is_found_by_the_sweep(row: Row) -> None:
    for fence in (None, QUORUM_LOST):
        with row(fence, cap=2) as harness:
            run = lose(harness)
            if fence is not None:
                run.documents.raise_fence(fence)
            finished(harness)
            assert harness.executions.live_runs() == {RUN, NEXT}
            cut_off(harness, "ABORTED")
            done = swept(harness)
            assert (done.settled, done.errors) == ((RUN,), ())
            assert harness.executions.live_runs() == set()
            assert swept(harness).settled == ()


def test_a_stop_of_the_continuation_that_fails_is_repeated(harness: ControlHarness) -> None:
    lose(harness)
    finished(harness)
    ended = cut_off(harness, "ABORTED")
    harness.cloud.calls.inject(Fault("StopExecution", AwsError("AccessDeniedException")))
    with pytest.raises(UnfinishedError, match="stop its continuation: "):
        cleared(harness, ended)
    assert harness.executions.live_runs() == {NEXT}
    cleared(harness, ended)
    assert harness.executions.live_runs() == set()


def test_a_continuation_that_a_user_started_after_the_cancel_is_left_alone(harness: ControlHarness) -> None:
    """`muster continue` of a cancelled run; then the event of its end comes once more."""
    ended = cancel_during_settlement(harness)
    harness.executions.start(NEXT, json.dumps({**SPEC, "name": NEXT, "resume_from": RUN}))
    plan_next(harness)
    cleared(harness, ended)
    assert harness.executions.live_runs() == {NEXT}


# --- a run that waits, and one that has ended ------------------------------------------------------


def test_a_run_that_is_cancelled_in_the_queue_is_stopped_and_launches_nothing(harness: ControlHarness) -> None:
    for name in ("first", RUN):
        harness.plan(name, replicas=2, **(CONTINUED if name == RUN else {}))
        harness.admit(name)
    stop_and_clear(harness)
    assert_all_agree(harness, RunState.STOPPED)
    queue = Queue.from_json(found(harness.plane.store.get(QUEUE_KEY)).body, QUEUE_KEY)
    assert [queued.run for queued in queue.runs] == ["first"]
    finished(harness, "first")
    assert harness.executions.live_runs() == {"first"}
    assert harness.cloud.training.names() == []


def test_a_cancel_after_a_success_leaves_the_success(harness: ControlHarness) -> None:
    """The execution is stopped between the result and its end."""
    launched(harness, **CONTINUED)
    complete(harness)
    finished(harness)
    stop_and_clear(harness)
    client = client_of(harness.cloud)
    assert found(harness.result()).verdict is Verdict.SUCCEEDED
    assert Observer(client, RUN).look().state is RunState.SUCCEEDED
    assert [one.run for one in list_runs(client, RunFilter(RunState.SUCCEEDED), 50)] == [RUN]
    assert list_runs(client, RunFilter(RunState.STOPPED), 50) == []


# --- the continuation policy -----------------------------------------------------------------------------

ATTEMPT = Attempt(attempt=1, job="job", status="Failed", secondary="Failed", failure_class=FailureClass.INFRASTRUCTURE)
LOST = ReplicaResult(rank=0, outcome=ReplicaOutcome.FAILED, attempts=(ATTEMPT,))
FAILED = Result(run=RUN, verdict=Verdict.FAILED, reason="", settled_at="", replicas=(LOST,), reruns=0)


def test_a_run_that_a_user_or_one_of_its_limits_has_ended_is_not_continued(row: Row) -> None:
    rows: list[tuple[FenceCause | str, bool]] = [
        ("no fence", True),
        (FenceCause.QUORUM_LOST, True),
        (FenceCause.EXECUTION_FAILED, True),
        (FenceCause.DEADLINE, False),
        (FenceCause.LAUNCH_GATE, False),
        (FenceCause.EXECUTION_STOPPED, False),
        ("the ceiling is reached", False),
    ]
    for before, is_continued in rows:
        with row(before) as harness:
            run = harness.plan(cost_ceiling_usd=1.5, **CONTINUED)
            if isinstance(before, FenceCause):
                # The reason is for people: no code reads it.
                run.documents.raise_fence(QUORUM_LOST.model_copy(update={"cause": before, "reason": "any words"}))
            elif before == "the ceiling is reached":
                run.documents.store.create(f"{run.documents.layout.spent}0-1-cost-1500000", b"{}")
            assert harness.plane.continuation_start.start_next(run, FAILED) == (NEXT if is_continued else None)
            assert harness.executions.live_runs() == ({RUN, NEXT} if is_continued else {RUN})
            assert harness.emitted() == (["Run Continued"] if is_continued else [])


def test_a_run_that_its_ceiling_has_ended_is_not_continued_although_less_is_billed(harness: ControlHarness) -> None:
    run, training = launched(harness, 2, cost_ceiling_usd=1.0, **CONTINUED), harness.cloud.training
    for rank in range(2):
        training.train(harness.job(rank))
    harness.deliver()
    harness.cloud.clock.advance(36_000)
    for rank in range(2):
        training.set_billable_seconds(harness.job(rank), 3_600)
    fail(harness, AGAIN)
    assert "the cost ceiling of $1.00 is reached" in found(harness.record().decision).reason
    stop_run(harness.plane, StopRequest(run=RUN, reason="replica 0 was lost"), budget())
    harness.cloud.clock.advance(training.stop_seconds + 1)
    harness.deliver()
    assert reached_ceiling(run) is None
    assert finished(harness).continued_by is None


def test_a_repeated_call_names_the_same_continuation(harness: ControlHarness) -> None:
    run, policy = harness.plan(**CONTINUED), harness.plane.continuation_start
    harness.cloud.calls.inject(throttle("StartExecution"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        policy.start_next(run, FAILED)
    names = [policy.start_next(run, FAILED) for _ in range(2)]
    harness.cloud.workflow.succeed(NEXT)
    names.append(policy.start_next(run, FAILED))
    assert names == [NEXT] * 3
    # Step Functions does not say that the execution runs already: the second event is a copy of the first.
    first, second = harness.cloud.events.of("Run Continued")
    assert first["id"] == second["id"]
    assert (first["continued_by"], first["generation"], first["max"]) == (NEXT, 1, 3)


def test_a_continuation_whose_name_is_taken_is_refused_and_announced(harness: ControlHarness) -> None:
    harness.executions.start(NEXT, '{"another": "spec"}')
    run = harness.plan(**CONTINUED)
    assert harness.plane.continuation_start.start_next(run, FAILED) is None
    [refused] = harness.cloud.events.of("Run Refused")
    assert (refused["request"], refused["error"]) == (run.plan.execution_arn, "Muster.RunNameTakenError")
