"""The demo's claims, and the checks whether they hold. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.markup import escape

from muster import ReplicaOutcome, Result, Verdict
from muster.contract.layout import RunLayout

# (inner steps, held-out loss in nats per character), by steps.
Curve = list[tuple[int, float]]

# How much higher the loss may be than data parallel's, which exchanges in every step.
ABOVE_DATA_PARALLEL = 0.05
# The processes of a replica add in another order than one process does, and hundreds of steps amplify the rounding.
SAME_LOSS = 0.01


@dataclass(frozen=True)
class Losses:
    """What the trainings have reached, in nats per held-out character.

    Attributes:
        processes: of each replica.
        with_other_processes: what earlier demos have reached with other numbers of processes.
    """

    together: Curve
    alone: Curve
    data_parallel: Curve
    processes: int = 1
    with_other_processes: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """The demo's outcome. `wall_seconds` count to the verdict."""

    result: Result
    same_model: bool
    losses: Losses
    utilisation: float
    wall_seconds: float
    phase_seconds: dict[str, float]

    @property
    def loss(self) -> float | None:
        """The loss of the shared model: all replicas' must be equal, so the highest stands for all."""
        losses = [replica.metrics.get("heldout") for replica in self.result.replicas]
        known = [loss for loss in losses if loss is not None]
        return max(known) if known and len(known) == len(losses) else None

    @property
    def parameters_identical(self) -> bool:
        """By the checksums that the replicas reported, and by the run's model."""
        return self.result.parameters_identical is True and self.same_model

    @property
    def problems(self) -> list[str]:
        """Why the demo failed; empty if it succeeded."""
        return list(self._problems())

    def _problems(self) -> Iterator[str]:
        if self.result.verdict is not Verdict.SUCCEEDED:
            yield f"the run's verdict is {self.result.verdict}: {self.result.reason}"
        for replica in self.result.replicas:
            if replica.outcome is not ReplicaOutcome.SUCCEEDED or replica.problem:
                yield f"replica {replica.rank} {replica.outcome}: {replica.problem or 'no result'}"
        if not self.parameters_identical:
            yield "the replicas do not hold the same parameters"
        if self.loss is None:
            yield "a replica reported no loss"
            return
        alone, data_parallel = self.losses.alone[-1][1], self.losses.data_parallel[-1][1]
        if not self.loss < (alone + data_parallel) / 2 < alone:
            yield f"the loss {self.loss:.3f} is no nearer to data parallel than to one alone"
        if not self.loss <= data_parallel * (1 + ABOVE_DATA_PARALLEL):
            yield f"the loss {self.loss:.3f} is more than {ABOVE_DATA_PARALLEL:.0%} above that of data parallel"
        for processes, loss in self.losses.with_other_processes.items():
            if abs(self.loss - loss) > SAME_LOSS * loss:
                yield (
                    f"the loss {self.loss:.3f} is not that of the same training with {counted(processes)} in each "
                    f"replica, {loss:.3f}"
                )

    def document(self) -> dict[str, object]:
        """The content of build/demo-gpt/result.json."""
        return {
            "verdict": "failed" if self.problems else "succeeded",
            "problems": self.problems,
            "run": self.result.run,
            "replicas": len(self.result.replicas),
            "processes": self.losses.processes,
            "reruns": self.result.reruns,
            "parameters_identical": self.parameters_identical,
            "loss": self.loss,
            "loss_alone": self.losses.alone[-1][1],
            "loss_by_other_processes": {
                str(processes): loss for processes, loss in self.losses.with_other_processes.items()
            },
            "loss_data_parallel": self.losses.data_parallel[-1][1],
            "utilisation": self.utilisation,
            "wall_seconds": round(self.wall_seconds, 1),
            "phase_seconds": {name: round(seconds, 1) for name, seconds in self.phase_seconds.items()},
        }


def verdict_lines(report: Report, sync_every: int) -> Iterator[str]:
    """The verdict as text with Rich's markup, in at most 80 columns."""
    result = report.result
    yield "[bold green]The run succeeded.[/]" if not report.problems else "[bold red]The run did not succeed.[/]"
    for problem in report.problems:
        yield f"  [red]{escape(problem)}[/]"
    together = "–" if report.loss is None else f"{report.loss:.3f}"
    yield ""
    steps = report.losses.data_parallel[-1][0]
    yield (
        f"  held-out loss       {together:>7}   {len(result.replicas)} replicas, {steps // sync_every:,} exchanges: "
        f"every {sync_every} steps"
    )
    yield from _process_lines(report.losses)
    yield f"  data parallel       {report.losses.data_parallel[-1][1]:>7.3f}   the same tokens, {steps:,} exchanges"
    yield f"  one replica alone   {report.losses.alone[-1][1]:>7.3f}   as many steps, on its own part of the text"
    attempts = " ".join(str(len(replica.attempts)) for replica in result.replicas)
    yield f"  attempts by rank    {attempts:>7}"
    yield f"  parameters          {'all replicas hold the same bytes' if report.parameters_identical else 'DIFFERENT'}"
    yield f"  utilisation         {report.utilisation:>7.1%}   of a replica's time went into its own training"
    yield f"  result in S3        {RunLayout(result.run).result}"
    yield from ([] if result.model is None else [f"  model in S3         {RunLayout(result.run).model}"])
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in report.phase_seconds.items())
    yield f"  time                {report.wall_seconds:>5.1f} s   {phases}"


def _process_lines(losses: Losses) -> Iterator[str]:
    if losses.processes > 1:
        yield f"  processes           {losses.processes:>7}   in each replica; each holds a part of the model (FSDP2)"
    for processes, loss in losses.with_other_processes.items():
        yield f"  with {counted(processes):<15}{loss:>7.3f}   in each replica: an earlier demo, the same training"
    if losses.processes > 1 and not losses.with_other_processes:
        yield "  with 1 process            –   not known yet: run make demo-gpt, too"


def counted(processes: int) -> str:
    """The number of processes in words."""
    return "1 process" if processes == 1 else f"{processes} processes"
