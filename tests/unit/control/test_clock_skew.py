"""The clocks of two functions may differ by a minute: no decision depends on who is right."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from muster.contract.run.result import Verdict
from muster.contract.spec.run_limits import Timer
from muster.control.admission import AdmitRequest, admit
from muster.control.attempt import Launch
from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.finish import finish_run
from muster.control.runtime import clock
from muster.control.timers import Fired, fire
from tests.memory.clock import START, SkewedClock
from tests.memory.harness import RUN, ControlHarness, budget

SKEW = 60


@contextmanager
def ahead(harness: ControlHarness, sign: int) -> Iterator[None]:
    with clock.replaced(SkewedClock(harness.cloud.clock, sign * SKEW)):
        yield


@pytest.mark.parametrize(("attempt", "react", "other"), list(itertools.product((-1, 1), repeat=3)))
def test_a_run_whose_functions_disagree_about_the_time_is_rerun_once_and_succeeds(
    attempt: int, react: int, other: int
) -> None:
    with ControlHarness(cap=2).installed() as harness:
        with ahead(harness, other):
            run = harness.plan(
                replicas=2,
                launch_gate={"replicas": 2, "within_seconds": 90},
                cost_ceiling_usd=100.0,
                reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 100}},
            )
            token = harness.cloud.workflow.token(RUN)
            assert admit(harness.plane, AdmitRequest(run=RUN, token=token))
        # The times of states are Step Functions'.
        requests = [harness.request(rank) for rank in range(2)]
        with ahead(harness, attempt):
            assert [harness.attempt(request) for request in requests] == [Launch.CREATED] * 2
        harness.cloud.training.train(harness.job(1))
        harness.cloud.training.fail(harness.job(), "InternalServerError: again")
        with ahead(harness, react):
            harness.deliver()
        waited, launch = 0, Launch.EARLY
        while launch is Launch.EARLY:
            request = harness.request(attempt=2)
            with ahead(harness, attempt):
                launch = harness.attempt(request)
            output = harness.output(request.token)
            if output is not None:
                assert (launch, output["next"]) == (Launch.EARLY, "rerun")
                waited += output["delay_seconds"]
                harness.cloud.clock.advance(output["delay_seconds"])
        assert launch is Launch.CREATED
        # 100 s and their jitter, and two minutes at most by which the two functions differ.
        assert 0 <= waited <= 125 + 2 * SKEW
        harness.cloud.training.train(harness.job(attempt=2))
        with ahead(harness, react):
            harness.deliver()
        with ahead(harness, other):
            assert fire(run, Timer.LAUNCH_GATE, budget()) is Fired.PASSED
        harness.cloud.training.complete(harness.job(attempt=2))
        harness.cloud.training.complete(harness.job(1))
        with ahead(harness, react):
            harness.deliver()
        with ahead(harness, other):
            finish_run(harness.plane, run, budget())
        result = harness.result()
        assert result is not None
        assert (result.verdict, result.reruns) == (Verdict.SUCCEEDED, 1)


@pytest.mark.parametrize("sign", [-1, 1])
def test_an_execution_that_ends_in_its_first_minute_is_cleared_up_by_a_function_with_another_time(
    harness: ControlHarness, sign: int
) -> None:
    with ahead(harness, -sign):
        run = harness.plan()
    request = harness.request()
    with ahead(harness, -sign):
        harness.attempt(request)
    harness.cloud.training.stop_seconds = 4
    arn = run.plan.execution_arn
    harness.cloud.client("stepfunctions").stop_execution(executionArn=arn)
    ended = ExecutionEnded(execution_arn=arn, name=RUN, status="ABORTED", started_at=START)
    with ahead(harness, sign):
        assert clear_up(harness.plane, run, ended, budget())
    result = harness.result()
    assert result is not None
    assert result.verdict is Verdict.STOPPED
    assert harness.cloud.training.names("InProgress", "Stopping") == []
