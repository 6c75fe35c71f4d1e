"""A cancel stays a cancel: whatever fence stands, whatever the functions are doing, no run that was cancelled is
continued, and status, list, page and result agree about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from muster.client.runs.cancellation import cancel
from muster.client.runs.observer import Observer
from muster.client.runs.run_filter import RunFilter
from muster.client.runs.run_list import list_runs
from muster.client.runs.run_state import RunState
from muster.contract.errors import SpecError
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.result import Result, Verdict
from muster.contract.run.run_queue import QUEUE_KEY, Queue
from muster.control.admission import AdmitRequest, admit
from muster.control.clear_up import ExecutionEnded, UnfinishedError, clear_up
from muster.control.finish import finish_run
from muster.control.planning import PlanRequest, make_plan
from muster.control.stop import StopRequest, stop_run
from muster.control.sweep import SweepRequest, sweep
from tests.memory import AwsError, Fault
from tests.memory.clock import START
from tests.memory.harness import RUN, SPEC, ControlHarness, budget
from tests.support.memory_client import client_of

POLICY = {"on": ["failed"], "max": 3}
NEXT = f"{RUN}-x2"
BROKEN = "AlgorithmError: ExitCode 1"


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    """A stack with a queue, whose clients try again."""
    with ControlHarness(cap=2).installed() as harness:
        harness.cloud.training.stop_seconds = 4
        yield harness


def stop_execution(harness: ControlHarness, run: str = RUN) -> None:
    arn = harness.cloud.workflow.execution_arn(run)
    harness.cloud.client("stepfunctions").stop_execution(executionArn=arn)


def clear(harness: ControlHarness, run: str = RUN) -> None:
    """The event of the execution's end arrives."""
    arn = harness.cloud.workflow.execution_arn(run)
    ended = ExecutionEnded(execution_arn=arn, name=run, status="ABORTED", started_at=START)
    clear_up(harness.plane, harness.plane.runs.find(run), ended, budget())


def stop_and_clear(harness: ControlHarness) -> None:
    stop_execution(harness)
    clear(harness)


def finish(harness: ControlHarness) -> object:
    """What the workflow's last task does."""
    return finish_run(harness.plane, harness.plane.runs.require(RUN), budget())


def lose(harness: ControlHarness, replicas: int = 1) -> None:
    """A run with a rerun policy, whose replica 0 is lost."""
    harness.plan(replicas=replicas, rerun=POLICY)
    for rank in range(replicas):
        harness.arm(rank)
    harness.cloud.training.fail(harness.job(), BROKEN)
    harness.deliver()


def plan_next(harness: ControlHarness, run: str = NEXT) -> None:
    """The first task of the continuation, with the input that its execution has."""
    arn = harness.cloud.workflow.execution_arn(run)
    found = harness.cloud.client("stepfunctions").describe_execution(executionArn=arn)
    started, document = found["startDate"].isoformat(), json.loads(found["input"])
    request = PlanRequest(execution_name=run, execution_arn=arn, started_at=started, input=document)
    make_plan(harness.plane.store, harness.deployment, request)


def assert_all_agree(harness: ControlHarness, state: RunState) -> Result:
    """The result, which is also what every look at the run shows."""
    client = client_of(harness.cloud)
    result = harness.result()
    assert result is not None
    assert Observer(client, RUN).look().state is state
    [listed] = [one for one in list_runs(client, RunFilter(), 50) if one.run == RUN]
    assert listed.state is state
    assert [one.run for one in list_runs(client, RunFilter(state), 50) if one.run == RUN] == [RUN]
    page = harness.plane.store.get(f"control/{RUN}/report.html")
    assert page is not None
    shown = {RunState.STOPPED: b"The run was stopped", RunState.FAILED: b"The run failed"}
    assert shown[state] in page.body
    assert result.verdict.value == state.value
    return result


# --- a run that is stopping already ---------------------------------------------------------------


@pytest.mark.parametrize("cause", list(FenceCause))
def test_a_cancelled_run_is_not_continued_whatever_fence_stood_first(
    harness: ControlHarness, cause: FenceCause
) -> None:
    lose(harness, replicas=2)
    fence = Fence(verdict=Verdict.FAILED, cause=cause, reason="replica 0 was lost", at="2026-01-01T00:00:00Z")
    if cause is FenceCause.EXECUTION_STOPPED:
        fence = fence.model_copy(update={"verdict": Verdict.STOPPED})
    harness.plane.runs.require(RUN).documents.raise_fence(fence)
    stop_and_clear(harness)
    result = assert_all_agree(harness, RunState.STOPPED)
    assert "replica 0 was lost" in result.reason
    assert harness.executions.live_runs() == set()
    assert harness.emitted()[-1] == "Run Stopped"
    assert harness.cloud.training.names("InProgress", "Stopping") == []


def test_a_cancel_while_the_quorum_is_lost_says_both(harness: ControlHarness) -> None:
    lose(harness, replicas=2)
    stop_run(harness.plane, StopRequest(run=RUN, reason="replica 0 was lost"), budget())
    stop_and_clear(harness)
    result = harness.result()
    assert result is not None
    assert result.reason == "the execution was stopped while the run was stopping: replica 0 was lost"


# --- a run that its workflow is settling ----------------------------------------------------------


def cancel_during_settlement(harness: ControlHarness) -> None:
    """The execution is stopped while its last task writes the result; the event of that comes later."""
    lose(harness)
    result = harness.plane.runs.require(RUN).documents.layout.result
    written = Fault(
        "PutObject", action=lambda: stop_execution(harness), when=lambda call: call.parameters["Key"] == result
    )
    harness.cloud.calls.inject(written)
    finish(harness)
    clear(harness)


def test_a_cancel_before_the_policy_looks_starts_no_continuation(harness: ControlHarness) -> None:
    cancel_during_settlement(harness)
    assert_all_agree(harness, RunState.FAILED)
    assert [call["name"] for call in harness.cloud.calls.of("StartExecution")] == [RUN]


def test_a_continuation_whose_start_meets_the_cancel_is_refused(harness: ControlHarness) -> None:
    """The cancel is cleared up while StartExecution is on its way, so there is no execution to be stopped."""
    lose(harness)
    harness.cloud.calls.inject(Fault("StartExecution", action=lambda: stop_and_clear(harness)))
    finish(harness)
    assert harness.executions.live_runs() == {NEXT}
    with pytest.raises(SpecError, match=f"{RUN} was cancelled while its rerun policy started {NEXT}"):
        plan_next(harness)
    assert harness.keys(f"control/{NEXT}/") == []
    assert "continued_by.json" not in harness.keys(f"control/{RUN}/")
    assert_all_agree(harness, RunState.FAILED)


@pytest.mark.parametrize("planned", [False, True])
def test_a_continuation_that_was_just_started_is_stopped_by_the_cancel(harness: ControlHarness, planned: bool) -> None:
    lose(harness)
    before: Callable[[], object] = (lambda: plan_next(harness)) if planned else (lambda: None)
    started = Fault("PutEvents", action=lambda: (before(), stop_and_clear(harness)), skip=1)
    harness.cloud.calls.inject(started)
    finish(harness)
    assert (started.fired, harness.executions.live_runs()) == (1, set())
    arn = harness.cloud.workflow.execution_arn(NEXT)
    found = harness.cloud.client("stepfunctions").describe_execution(executionArn=arn)
    assert (found["status"], found["cause"]) == ("ABORTED", f"{RUN}, which this run continues, was cancelled.")


def test_a_cancel_whose_event_is_lost_after_the_end_was_complete_is_found_by_the_sweep(harness: ControlHarness) -> None:
    lose(harness)
    finish(harness)
    stop_execution(harness)
    harness.cloud.notifications.drain()
    swept = sweep(harness.plane, harness.executions, SweepRequest(), budget())
    assert (swept.settled, swept.errors) == ((RUN,), ())
    assert harness.executions.live_runs() == set()
    assert sweep(harness.plane, harness.executions, SweepRequest(), budget()).settled == ()


def test_a_stop_of_the_continuation_that_fails_is_repeated(harness: ControlHarness) -> None:
    lose(harness)
    finish(harness)
    stop_execution(harness)
    harness.cloud.calls.inject(Fault("StopExecution", AwsError("AccessDeniedException")))
    with pytest.raises(UnfinishedError, match="stop its continuation: "):
        clear(harness)
    assert harness.executions.live_runs() == {NEXT}
    clear(harness)
    assert harness.executions.live_runs() == set()


def test_a_continuation_that_a_user_started_after_the_cancel_is_left_alone(harness: ControlHarness) -> None:
    """`muster rerun` of a cancelled run; then the event of its end comes once more."""
    cancel_during_settlement(harness)
    harness.executions.start(NEXT, json.dumps({**SPEC, "name": NEXT, "resume_from": RUN}))
    plan_next(harness)
    clear(harness)
    assert harness.executions.live_runs() == {NEXT}


def test_the_client_stops_a_continuation_that_it_finds_right_after_the_cancel(harness: ControlHarness) -> None:
    lose(harness)
    finish(harness)
    plan_next(harness)
    assert cancel(client_of(harness.cloud), RUN, 1).stopped == (RUN, NEXT)
    assert harness.executions.live_runs() == set()


# --- a run that waits, and one that has ended ------------------------------------------------------


def test_a_run_that_is_cancelled_in_the_queue_is_stopped_and_launches_nothing(harness: ControlHarness) -> None:
    first = harness.plan("first", replicas=2)
    run = harness.plan(replicas=2, rerun=POLICY)
    tokens = [harness.cloud.workflow.token(one.plan.run) for one in (first, run)]
    for one, token in zip((first, run), tokens, strict=True):
        admit(harness.plane, AdmitRequest(run=one.plan.run, token=token))
    stop_and_clear(harness)
    assert_all_agree(harness, RunState.STOPPED)
    found = harness.plane.store.get(QUEUE_KEY)
    assert found is not None
    assert [queued.run for queued in Queue.from_json(found.body, QUEUE_KEY).runs] == ["first"]
    finish_run(harness.plane, first, budget())
    assert harness.executions.live_runs() == {"first"}
    assert harness.cloud.training.names() == []


def test_a_cancel_after_a_success_leaves_the_success(harness: ControlHarness) -> None:
    """The execution is stopped between the result and its end."""
    harness.plan(rerun=POLICY)
    harness.arm()
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    finish(harness)
    stop_and_clear(harness)
    client = client_of(harness.cloud)
    result = harness.result()
    assert result is not None
    assert result.verdict is Verdict.SUCCEEDED
    assert Observer(client, RUN).look().state is RunState.SUCCEEDED
    assert [one.run for one in list_runs(client, RunFilter(RunState.SUCCEEDED), 50)] == [RUN]
    assert list_runs(client, RunFilter(RunState.STOPPED), 50) == []
