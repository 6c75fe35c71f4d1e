"""The demo claims success only for a run that truly succeeded."""

from __future__ import annotations

from typing import Any

import pytest

from examples.digits.report import Report, verdict_lines
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict


def replica(rank: int, attempts: int = 1, **changes: Any) -> ReplicaResult:
    lost = {"status": "Failed", "secondary": "Failed", "failure_class": FailureClass.INFRASTRUCTURE}
    done = {"status": "Completed", "secondary": "Completed"}
    ends = [lost] * (attempts - 1) + [done]
    tried = tuple(
        Attempt(attempt=number, job=f"muster-digits-r{rank}-a{number}", launched_at="", **end)
        for number, end in enumerate(ends, start=1)
    )
    values = {"outcome": ReplicaOutcome.SUCCEEDED, "round": 20, "metrics": {"accuracy": 0.97}} | changes
    return ReplicaResult(rank=rank, attempts=tried, **values)


def report(*replicas: ReplicaResult, same: bool = True, baseline: float = 0.975, **changes: Any) -> Report:
    values = {"verdict": Verdict.SUCCEEDED, "reason": "", "reruns": 1, "parameters_identical": True} | changes
    result = Result(run="digits", settled_at="", replicas=replicas or (replica(0), replica(1, 2)), **values)
    return Report(result, same, baseline, wall_seconds=30.0, phase_seconds={"run": 20.0})


def test_a_run_that_succeeded_is_reported_as_such() -> None:
    success = report()
    assert success.problems == []
    assert success.document() == {
        "verdict": "succeeded",
        "problems": [],
        "run": "digits",
        "replicas": 2,
        "rounds": 20,
        "reruns": 1,
        "attempts": {"0": 1, "1": 2},
        "restarts": {},
        "instances": {},
        "parameters_identical": True,
        "accuracy": 0.97,
        "baseline_accuracy": 0.975,
        "wall_seconds": 30.0,
        "phase_seconds": {"run": 20.0},
    }
    lines = list(verdict_lines(success))
    assert "The run succeeded." in lines[0]
    assert any("replica 1 attempt 1: infrastructure" in line for line in lines)


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        (report(verdict=Verdict.FAILED, reason="lost"), "the run's verdict is failed: lost"),
        (report(replica(0, outcome=ReplicaOutcome.FAILED), replica(1)), "replica 0 failed: no result"),
        (report(replica(0, problem="no manifest"), replica(1)), "replica 0 succeeded: no manifest"),
        (report(reruns=0), "no attempt was rerun: the lost instance was not noticed"),
        (report(parameters_identical=False), "the replicas do not hold the same parameters"),
        (report(parameters_identical=None), "the replicas do not hold the same parameters"),
        (report(same=False), "the replicas do not hold the same parameters"),
        (report(baseline=0.9801), "the accuracy 0.97 is more than 0.01 below the baseline's 0.9801"),
        (report(replica(0), replica(1, metrics={})), "the accuracy 0.0 is more than 0.01 below the baseline's 0.975"),
    ],
)
def test_whatever_is_missing_makes_it_a_failure(failure: Report, problem: str) -> None:
    assert problem in failure.problems
    assert failure.document()["verdict"] == "failed"
    assert "did not succeed" in next(iter(verdict_lines(failure)))
