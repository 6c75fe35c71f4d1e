"""The demos claim success only for runs that truly succeeded; their processes and helpers compute what one does."""

import socket
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from examples.char_gpt import report as gpt
from examples.char_gpt.processes import asked_processes, remember
from examples.digits import report as digits
from examples.digits.dataset import load
from examples.digits.helpers import Helpers, help_first
from examples.digits.model import Classifier
from muster import MusterError, Spec
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict

LOST = Attempt(attempt=1, job="j1", status="Failed", secondary="Failed", failure_class=FailureClass.INFRASTRUCTURE)
DONE = Attempt(attempt=2, job="j2", status="Completed", secondary="Completed")
FAILED = ReplicaOutcome.FAILED


def replica(rank: int, **changes: Any) -> ReplicaResult:
    values = {"outcome": ReplicaOutcome.SUCCEEDED, "round": 20, "metrics": {"accuracy": 0.97, "heldout": 1.52}}
    return ReplicaResult(rank=rank, attempts=(LOST, DONE), **{**values, **changes})


def result(*replicas: ReplicaResult, **changes: Any) -> Result:
    values = {"verdict": Verdict.SUCCEEDED, "reason": "", "reruns": 1, "parameters_identical": True} | changes
    return Result(run="demo", settled_at="", replicas=replicas or (replica(0), replica(1)), **values)


def of_digits(*replicas: ReplicaResult, same: bool = True, baseline: float = 0.975, **changes: Any) -> digits.Report:
    return digits.Report(result(*replicas, **changes), same, baseline, wall_seconds=30.0, phase_seconds={"run": 20.0})


def of_gpt(
    *replicas: ReplicaResult, alone: float = 1.74, data_parallel: float = 1.46, same: bool = True, **processes: Any
) -> gpt.Report:
    curves = ([(1600, loss)] for loss in (1.52, alone, data_parallel))
    losses = gpt.Losses(*curves, **processes)
    return gpt.Report(result(*replicas), same, losses, utilisation=0.97, wall_seconds=90.0, phase_seconds={"run": 80.0})


def lines_of(report: digits.Report | gpt.Report) -> list[str]:
    if isinstance(report, gpt.Report):
        return list(gpt.verdict_lines(report, sync_every=20))
    return list(digits.verdict_lines(report))


def test_a_run_that_succeeded_is_reported_as_such() -> None:
    for success, words in (
        (of_digits(), ["replica 1 attempt 1: infrastructure"]),
        (of_gpt(), ["1.520   2 replicas, 80 exchanges", "1.460"]),
    ):
        assert success.problems == []
        assert success.document()["verdict"] == "succeeded"
        lines = lines_of(success)
        assert "succeeded" in lines[0]
        assert [word for word in words if not any(word in line for line in lines)] == [], lines


FAILURES: list[tuple[digits.Report | gpt.Report, str]] = [
    (of_digits(verdict=Verdict.FAILED, reason="lost"), "verdict is failed: lost"),
    (of_digits(replica(0, outcome=FAILED), replica(1)), "replica 0 failed: no result"),
    (of_digits(replica(0, problem="no manifest"), replica(1)), "replica 0 succeeded: no manifest"),
    (of_digits(reruns=0), "no attempt was rerun"),
    (of_digits(parameters_identical=None), "same parameters"),
    (of_digits(same=False), "same parameters"),
    (of_digits(baseline=0.9801), "0.97 is more than 0.01 below the baseline's 0.9801"),
    (of_digits(replica(0), replica(1, metrics={})), "0.0 is more than 0.01 below the baseline's 0.975"),
    (of_gpt(replica(0, outcome=FAILED), replica(1)), "replica 0 failed: no result"),
    (of_gpt(same=False), "same parameters"),
    (of_gpt(replica(0), replica(1, metrics={})), "no loss"),
    (of_gpt(data_parallel=1.44), "5% above that of data parallel"),
    (of_gpt(processes=2, with_other_processes={1: 1.54}), "with 1 process in each replica, 1.540"),
    (of_gpt(alone=1.57), "no nearer to data parallel"),
    # As good as data parallel proves nothing where one replica alone is, too.
    (of_gpt(alone=1.51, data_parallel=1.53), "no nearer to data parallel"),
]


def test_whatever_is_missing_makes_it_a_failure() -> None:
    for failure, problem in FAILURES:
        assert any(problem in found for found in failure.problems), (problem, failure.problems)
        assert failure.document()["verdict"] == "failed", problem
        assert "did not succeed" in lines_of(failure)[0], problem


def test_the_number_of_processes_is_the_users_or_that_of_the_spec(subtests: pytest.Subtests) -> None:
    def spec(**changes: Any) -> Spec:
        return Spec(replicas=4, trainer="a:b", **changes)

    assert [asked_processes("", one, 8) for one in (spec(), spec(processes="auto"), spec(processes=4))] == [1, 1, 4]
    assert asked_processes("2", spec(processes=4), 8) == 2
    for text in ("3", "0", "two", "16", "2.0"):
        with subtests.test(text=text), pytest.raises(MusterError, match=f"PROCESSES is {text}; allowed: 1, 2, 4, 8"):
            asked_processes(text, spec(), 8)


def test_losses_of_the_same_training_are_remembered(tmp_path: Path) -> None:
    file, training = tmp_path / "losses.json", {"replicas": 4, "steps": 1600}
    assert remember(file, training, 1, 1.51) == remember(file, training, 1, 1.512) == {}
    assert remember(file, training, 2, 1.513) == {1: 1.512}
    assert remember(file, training, 4, None) == {1: 1.512, 2: 1.513}
    assert remember(file, {**training, "steps": 800}, 2, 1.6) == remember(file, training, 1, 1.51) == {}
    # A file that cannot be read is written again.
    for content in ("", "[]", '{"training": {}, "losses": {"1": []}}'):
        file.write_text(content)
        assert (remember(file, {}, 1, 1.5), remember(file, {}, 2, 1.5)) == ({}, {1: 1.5}), content


def test_processes_together_compute_the_gradients_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port - 1))
    examples, _ = load()
    model, drawn = Classifier(16, 0), np.arange(33)
    helper = Thread(target=help_first, args=(Classifier(16, 1), examples))
    helper.start()
    helpers = Helpers(1)
    loss, gradients = helpers.loss_and_gradients(model, examples, drawn)
    alone, expected = model.loss_and_gradients(examples[drawn])
    helpers.close()
    helper.join(30)
    assert not helper.is_alive()
    assert loss == pytest.approx(alone)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-4, atol=1e-6)
