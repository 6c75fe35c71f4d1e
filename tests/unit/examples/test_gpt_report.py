"""The GPT demo claims success only where the replicas together came near to data parallel."""

from __future__ import annotations

from typing import Any

import pytest

from examples.char_gpt.report import Losses, Report, verdict_lines
from muster.contract.run.attempt import Attempt
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict


def replica(rank: int, **changes: Any) -> ReplicaResult:
    attempt = Attempt(attempt=1, job=f"gpt-r{rank}-a1", launched_at="", status="Completed", secondary="Completed")
    values = {"outcome": ReplicaOutcome.SUCCEEDED, "round": 80, "metrics": {"heldout": 1.52}} | changes
    return ReplicaResult(rank=rank, attempts=(attempt,), **values)


def report(
    *replicas: ReplicaResult, alone: float = 1.74, data_parallel: float = 1.46, same: bool = True, **processes: Any
) -> Report:
    result = Result(
        run="gpt",
        settled_at="",
        replicas=replicas or (replica(0), replica(1)),
        verdict=Verdict.SUCCEEDED,
        reason="",
        reruns=0,
        parameters_identical=True,
    )
    curves = ([(1600, loss)] for loss in (1.52, alone, data_parallel))
    return Report(
        result, same, Losses(*curves, **processes), utilisation=0.97, wall_seconds=90.0, phase_seconds={"run": 80.0}
    )


def test_a_run_that_succeeded_is_reported_as_such() -> None:
    success = report()
    assert success.problems == []
    assert success.document()["verdict"] == "succeeded"
    lines = list(verdict_lines(success, sync_every=20))
    assert "The run succeeded." in lines[0]
    assert any("1.520   2 replicas, 80 exchanges" in line for line in lines)
    assert any("1.460   the same tokens, 1,600 exchanges" in line for line in lines)


def test_the_loss_stands_beside_that_of_other_numbers_of_processes() -> None:
    lines = list(verdict_lines(report(processes=2, with_other_processes={1: 1.521, 4: 1.518}), sync_every=20))
    shown = [line for line in lines if "process" in line]
    assert shown == [
        "  processes                 2   in each replica; each holds a part of the model (FSDP2)",
        "  with 1 process        1.521   in each replica: an earlier demo, the same training",
        "  with 4 processes      1.518   in each replica: an earlier demo, the same training",
    ]
    assert max(map(len, lines)) <= 90
    unknown = list(verdict_lines(report(processes=2), sync_every=20))
    assert any("not known yet: run make demo-gpt, too" in line for line in unknown)
    assert not any("process" in line for line in verdict_lines(report(), sync_every=20))


@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        (report(replica(0, outcome=ReplicaOutcome.FAILED), replica(1)), "replica 0 failed: no result"),
        (report(same=False), "the replicas do not hold the same parameters"),
        (report(replica(0), replica(1, metrics={})), "a replica reported no loss"),
        (report(data_parallel=1.44), "the loss 1.520 is more than 5% above that of data parallel"),
        (
            report(processes=2, with_other_processes={1: 1.54}),
            "the loss 1.520 is not that of the same training with 1 process in each replica, 1.540",
        ),
        (report(alone=1.57), "the loss 1.520 is no nearer to data parallel than to one alone"),
        # As good as data parallel proves nothing where one replica alone is, too.
        (report(alone=1.51, data_parallel=1.53), "the loss 1.520 is no nearer to data parallel than to one alone"),
    ],
)
def test_whatever_is_missing_makes_it_a_failure(failure: Report, problem: str) -> None:
    assert problem in failure.problems
    assert failure.document()["verdict"] == "failed"
    assert "did not succeed" in next(iter(verdict_lines(failure, sync_every=20)))
