"""The demo's claims, the checks whether they hold, and how they are shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from examples.stage import Stage, shown
from muster import ClusterJob, ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.layout import RunLayout

TOLERANCE = 0.01  # of accuracy: one percentage point


def without_rerun(result: Result) -> Iterator[str]:
    """What is wrong with a run that lost an instance, if nothing was rerun."""
    if result.reruns < 1:
        yield "no attempt was rerun: the lost instance was not noticed"


@dataclass(frozen=True)
class Report:
    """The demo's outcome.

    `same_model` says whether the run's model was fetched and holds the parameters that the replicas reported.
    Accuracies are shares of the held-out examples; `wall_seconds` count to the verdict.
    """

    result: Result
    same_model: bool
    baseline_accuracy: float
    wall_seconds: float
    phase_seconds: dict[str, float]
    missed: Callable[[Result], Iterator[str]] = without_rerun
    """What should have happened to the run and has not."""

    @property
    def trained(self) -> list[ReplicaResult]:
        """The replicas that trained to the end, or should have: those whose seats are not parked."""
        return [replica for replica in self.result.replicas if replica.outcome is not ReplicaOutcome.PARKED]

    @property
    def accuracy(self) -> float | None:
        """The accuracy of the shared model: all replicas' must be equal, so the lowest stands for all."""
        return min((replica.metrics.get("accuracy", 0.0) for replica in self.trained), default=None)

    @property
    def parameters_identical(self) -> bool:
        """By the checksums that the replicas reported, and by the run's model."""
        return self.result.parameters_identical is True and self.same_model

    @property
    def rounds(self) -> int | None:
        """The rounds that every replica has completed."""
        rounds = [replica.round for replica in self.trained if replica.round is not None]
        return min(rounds, default=None)

    @property
    def problems(self) -> list[str]:
        """Why the demo failed; empty if it succeeded."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        result = self.result
        if result.verdict is not Verdict.SUCCEEDED:
            yield f"the run's verdict is {result.verdict}: {result.reason}"
        for replica in self.trained:
            if replica.outcome is not ReplicaOutcome.SUCCEEDED or replica.problem:
                yield f"replica {replica.rank} {replica.outcome}: {replica.problem or 'no result'}"
        yield from self.missed(result)
        if not self.parameters_identical:
            yield "the replicas do not hold the same parameters"
        if self.accuracy is None or self.accuracy < self.baseline_accuracy - TOLERANCE:
            yield f"the accuracy {self.accuracy} is more than {TOLERANCE} below the baseline's {self.baseline_accuracy}"

    def document(self) -> dict[str, object]:
        """The content of build/demo/result.json."""
        return {
            "verdict": "failed" if self.problems else "succeeded",
            "problems": self.problems,
            "run": self.result.run,
            "replicas": len(self.result.replicas),
            "rounds": self.rounds,
            "reruns": self.result.reruns,
            "attempts": {str(replica.rank): len(replica.attempts) for replica in self.result.replicas},
            "restarts": {str(rank): job.restarts for rank, job in last_jobs(self.result).items()},
            "instances": {str(rank): job.instances for rank, job in last_jobs(self.result).items()},
            "parameters_identical": self.parameters_identical,
            "accuracy": self.accuracy,
            "baseline_accuracy": self.baseline_accuracy,
            "wall_seconds": round(self.wall_seconds, 1),
            "phase_seconds": {name: round(seconds, 1) for name, seconds in self.phase_seconds.items()},
        }


def reported(
    stage: Stage,
    result: Result,
    baseline_accuracy: float,
    missed: Callable[[Result], Iterator[str]] = without_rerun,
) -> Report:
    """The outcome of a demo's run, whose model is fetched. Where it failed, the cloud's logs are saved."""
    same = stage.fetch_model(result)
    report = Report(result, same, baseline_accuracy, stage.watch.total, stage.watch.seconds, missed)
    if report.problems:
        stage.save_logs()
    return report


def last_jobs(result: Result) -> dict[int, ClusterJob]:
    """The last job of each replica that is on a cluster."""
    found = {replica.rank: replica.attempts[-1].cluster for replica in result.replicas if replica.attempts}
    return {rank: job for rank, job in found.items() if job is not None}


def verdict_lines(report: Report) -> Iterator[str]:
    """The verdict as text with Rich's markup, in at most 80 columns."""
    result = report.result
    yield "[bold green]The run succeeded.[/]" if not report.problems else "[bold red]The run did not succeed.[/]"
    for problem in report.problems:
        yield f"  [red]{escape(problem)}[/]"
    together = "–" if report.accuracy is None else f"{report.accuracy:.2%}"
    yield ""
    yield f"  held-out accuracy   {together:>7}   {len(report.trained)} replicas, each on its own part of the data"
    yield f"  baseline            {report.baseline_accuracy:>7.2%}   one process on all of it"
    yield f"  rounds              {report.rounds or 0:>7}"
    attempts = " ".join(str(len(replica.attempts)) for replica in result.replicas)
    yield f"  attempts by rank    {attempts:>7}   {_reruns(result)}"
    if jobs := last_jobs(result).values():
        restarts = " ".join(str(job.restarts) for job in jobs)
        instances = " ".join(str(job.instances) for job in jobs)
        yield f"  restarts by rank    {restarts:>7}   by the operator, in the same attempt"
        yield f"  instances by rank   {instances:>7}   at the end"
    yield f"  parameters          {'all replicas hold the same bytes' if report.parameters_identical else 'DIFFERENT'}"
    yield f"  result in S3        {RunLayout(result.run).result}"
    yield from ([] if result.model is None else [f"  model in S3         {RunLayout(result.run).model}"])
    yield f"  time                {report.wall_seconds:>5.1f} s   {_phases(report)}"


def concluded(console: Console, folder: Path, report: Report) -> bool:
    """Write `result.json` into the demo's folder and print the verdict; returns whether the demo succeeded."""
    (folder / "result.json").write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    for line in verdict_lines(report):
        console.print(line, soft_wrap=True)
    console.print(f"\nWritten to {shown(folder)}: result.json (this), run.json (Muster's own result)", soft_wrap=True)
    console.print(f"The run's page, for a browser: {shown(folder / 'report.html')}", soft_wrap=True)
    return not report.problems


def _reruns(result: Result) -> str:
    return ", ".join(
        f"replica {replica.rank} attempt {attempt.attempt}: {attempt.failure_class}"
        for replica in result.replicas
        for attempt in replica.attempts[:-1]
    )


def _phases(report: Report) -> str:
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.phase_seconds.items())
