"""The result of a run holds the last log lines of attempts that failed, or none where they cannot be read."""

from __future__ import annotations

import pytest

from muster.contract.run.result import Result
from muster.control.settle import settle
from tests.memory import throttle
from tests.memory.harness import RUN, ControlHarness, budget

BROKEN = "AlgorithmError: , exit code: 1"


def fail(harness: ControlHarness, *lines: str, rank: int = 0, host: str = "algo-1") -> None:
    harness.arm(rank)
    harness.cloud.training.train(harness.job(rank))
    harness.cloud.logs.write(harness.job(rank), *lines, host=host)
    harness.cloud.training.fail(harness.job(rank), BROKEN)
    harness.deliver()


def settled(harness: ControlHarness) -> Result:
    return settle(harness.plane.runs.require(RUN), budget())


def test_the_last_lines_of_a_failed_attempt_are_in_the_result_without_the_values_of_its_environment(
    harness: ControlHarness,
) -> None:
    harness.plan(environment={"API_KEY": "sk-0123456789"})
    fail(harness, *(f"step {number}" for number in range(100)), "401 for sk-0123456789")
    [replica] = settled(harness).replicas
    lines = replica.attempts[0].last_lines
    assert (len(lines), lines[0], lines[-1]) == (40, "step 61", "401 for (API_KEY, not shown)")
    assert harness.record().current.last_lines == ()


def test_lines_of_several_instances_are_merged_in_order_of_time(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    for host, line in (("algo-2", "first"), ("algo-1", "second"), ("algo-2", "third")):
        harness.cloud.logs.write(harness.job(), line, host=host)
        harness.cloud.clock.advance(1)
    harness.cloud.training.train(harness.job())
    harness.cloud.training.fail(harness.job(), BROKEN)
    harness.deliver()
    assert settled(harness).replicas[0].attempts[0].last_lines == ("first", "second", "third")


def test_a_replica_that_succeeds_costs_no_call_for_its_log(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.logs.write(harness.job(), "done")
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    settled(harness)
    assert harness.cloud.calls.counts()["DescribeLogStreams"] == 0


@pytest.mark.parametrize("operation", ["DescribeLogStreams", "GetLogEvents"])
def test_a_log_that_cannot_be_read_does_not_keep_a_run_from_its_result(harness: ControlHarness, operation: str) -> None:
    harness.plan()
    harness.cloud.calls.inject(throttle(operation, count=None))
    fail(harness, "why")
    result = settled(harness)
    assert (result.verdict, result.replicas[0].attempts[0].last_lines) == ("failed", ())


def test_a_job_that_wrote_nothing_has_no_lines(harness: ControlHarness) -> None:
    harness.plan()
    fail(harness)
    assert settled(harness).replicas[0].attempts[0].last_lines == ()
