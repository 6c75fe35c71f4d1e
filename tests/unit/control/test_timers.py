"""What a timer decides, and how it is set."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from botocore.exceptions import ClientError

from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.result import Result, Verdict
from muster.contract.spec.run_limits import Timer
from muster.control.active_run import ActiveRun
from muster.control.aws.timer_schedules import Timers
from muster.control.timers import Fired, fire
from tests.memory import server_error, throttle
from tests.memory.clock import START
from tests.memory.harness import RUN, ControlHarness, budget

GATE = {"replicas": 2, "within_seconds": 60}
FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:timer"
ROLE = "arn:aws:iam::123456789012:role/timer"


@pytest.fixture
def run(harness: ControlHarness) -> ActiveRun:
    """Three replicas, of which two must be at work after a minute."""
    return harness.plan(replicas=3, launch_gate=GATE, deadline_seconds=90)


def train(harness: ControlHarness, rank: int) -> None:
    harness.arm(rank)
    harness.cloud.training.train(harness.job(rank))
    harness.deliver()


def test_a_gate_that_enough_replicas_have_passed_stops_nothing(harness: ControlHarness, run: ActiveRun) -> None:
    """One has succeeded, one trains, one waits for an instance."""
    for rank in range(2):
        train(harness, rank)
    harness.arm(2)
    harness.cloud.training.complete(harness.job(0))
    harness.deliver()
    assert fire(run, Timer.LAUNCH_GATE, budget()) is Fired.PASSED
    assert run.documents.fence() is None


def test_a_gate_that_too_few_have_passed_raises_the_fence_and_stops_the_jobs(
    harness: ControlHarness, run: ActiveRun
) -> None:
    """One trains, one waits for an instance, one has no record."""
    train(harness, 0)
    harness.arm(1)
    assert fire(run, Timer.LAUNCH_GATE, budget()) is Fired.STOPPED
    fence = run.documents.fence()
    assert fence is not None
    assert (fence.verdict, fence.cause) == (Verdict.FAILED, FenceCause.LAUNCH_GATE)
    assert fence.reason == "launch gate: only 1 of the required 2 replicas were training after 60 s"
    assert harness.cloud.training.names("Stopping") == [harness.job(0), harness.job(1)]


def test_a_lost_replica_is_not_at_work(harness: ControlHarness, run: ActiveRun) -> None:
    for rank in range(2):
        train(harness, rank)
    harness.cloud.training.fail(harness.job(1), "AlgorithmError: broken")
    harness.deliver()
    assert fire(run, Timer.LAUNCH_GATE, budget()) is Fired.STOPPED


def test_a_replica_whose_events_were_lost_is_at_work_by_its_job(harness: ControlHarness, run: ActiveRun) -> None:
    for rank in range(2):
        harness.arm(rank)
        harness.cloud.training.train(harness.job(rank))
    assert fire(run, Timer.LAUNCH_GATE, budget()) is Fired.PASSED


def test_a_timer_that_fires_again_completes_what_the_first_call_did_not(
    harness: ControlHarness, run: ActiveRun
) -> None:
    train(harness, 0)
    harness.cloud.calls.inject(throttle("StopTrainingJob"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        fire(run, Timer.LAUNCH_GATE, budget())
    fence = run.documents.fence()
    assert harness.cloud.training.names("InProgress") == [harness.job(0)]
    assert fire(run, Timer.LAUNCH_GATE, budget()) is Fired.STOPPED
    assert harness.cloud.training.names("Stopping") == [harness.job(0)]
    assert run.documents.fence() == fence


def test_a_run_without_a_gate_passes_it(harness: ControlHarness) -> None:
    assert fire(harness.plan("ungated"), Timer.LAUNCH_GATE, budget()) is Fired.PASSED


def test_a_deadline_raises_the_fence_whatever_the_replicas_do(harness: ControlHarness, run: ActiveRun) -> None:
    train(harness, 0)
    assert fire(run, Timer.DEADLINE, budget()) is Fired.STOPPED
    fence = run.documents.fence()
    assert fence is not None
    assert (fence.cause, fence.reason) == (
        FenceCause.DEADLINE,
        "deadline: the run had not ended 90 s after its launch",
    )
    assert fire(run, Timer.LAUNCH_GATE, budget()) is Fired.OVER
    assert run.documents.fence() == fence


def test_a_timer_of_a_run_that_is_being_stopped_for_another_cause_does_nothing(
    harness: ControlHarness, run: ActiveRun
) -> None:
    train(harness, 0)
    run.documents.raise_fence(Fence(verdict=Verdict.FAILED, cause=FenceCause.QUORUM_LOST, reason="deadline: no", at=""))
    assert fire(run, Timer.DEADLINE, budget()) is Fired.OVER
    assert harness.cloud.training.names("InProgress") == [harness.job(0)]


def test_a_timer_of_a_run_that_is_over_or_never_was_does_nothing(run: ActiveRun) -> None:
    result = Result(run=RUN, verdict=Verdict.SUCCEEDED, reason="", settled_at="t", replicas=(), reruns=0)
    run.documents.store.create(run.documents.layout.result, result.to_json())
    assert fire(run, Timer.DEADLINE, budget()) is fire(None, Timer.DEADLINE, budget()) is Fired.OVER
    assert run.documents.fence() is None


def test_timers_are_set_once_from_the_launch_on(harness: ControlHarness, run: ActiveRun) -> None:
    timers = Timers(harness.cloud.client("scheduler"), FUNCTION, ROLE, "muster")
    timers.set(RUN, run.plan.spec.timers())
    harness.cloud.clock.advance(30)
    timers.set(RUN, run.plan.spec.timers())
    harness.cloud.clock.advance(90)
    found = [(firing.at - START, json.loads(firing.input)) for firing in harness.cloud.scheduler.fired]
    assert found == [
        (timedelta(seconds=60), {"run": RUN, "timer": "launch-gate"}),
        (timedelta(seconds=90), {"run": RUN, "timer": "deadline"}),
    ]


def test_a_timer_that_cannot_be_set_is_an_error(harness: ControlHarness, run: ActiveRun) -> None:
    harness.cloud.calls.inject(server_error("CreateSchedule"))
    with pytest.raises(ClientError, match="InternalFailure"):
        Timers(harness.cloud.client("scheduler"), FUNCTION, ROLE, "muster").set(RUN, run.plan.spec.timers())
