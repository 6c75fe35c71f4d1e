"""A GPT trained by four replicas on this machine: `make demo-gpt`.

Starts the embedded cloud, deploys the real stack to it, launches examples/char_gpt/run.yaml, trains the two baselines
meanwhile, and compares the losses. Writes build/demo-gpt/result.json and losses.svg; exits with 0 only if the run
succeeded and its result is as good as expected. PROCESSES=2 lets two processes share the model of each replica (FSDP2).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from threading import Event

from rich.console import Console

from examples.char_gpt.baselines import alone, data_parallel
from examples.char_gpt.learning import SYNC_EVERY, Settings
from examples.char_gpt.plot import plot
from examples.char_gpt.processes import asked_processes, remember
from examples.char_gpt.report import Curve, Losses, Report, verdict_lines
from examples.stage import ROOT, Stage, perform, replica_arguments, shown
from muster import RunStatus, Spec

SPEC = Path(__file__).with_name("run.yaml")
RUN_TIMEOUT_SECONDS = 480.0  # for replicas of one process; several share the machine's cores

_INTRODUCTION = """\
Muster demo: {replicas} replicas train one GPT on the sources of Python's standard library,
each on its own part. They exchange every {sync_every} steps, through an S3 bucket alone.
{sharded}For comparison, the same model is trained by one replica alone and with all data in every step.
"""
_OUTER = (
    "sync_every",
    "outer_learning_rate",
    "outer_momentum",
    "fragments",
    "delay",
    "alpha",
    "eager",
    "codec",
    "average",
    "threads",
)


def demo(console: Console, folder: Path, spec: Spec) -> bool:
    """Run the demo; returns whether the run succeeded with the expected result.

    Raises:
        MusterError: a part could not be started, or the run could not be followed.
    """
    every = int(spec.kwargs.get("sync_every", SYNC_EVERY))  # type: ignore[arg-type]
    settings = Settings(**replica_arguments(spec, *_OUTER))
    processes = asked_processes(os.environ.get("PROCESSES", ""), spec, settings.batch_size)
    spec = spec.model_copy(update={"processes": processes})
    sharded = f"The {processes} processes of a replica share its model and its batches (FSDP2).\n"
    console.print(
        _INTRODUCTION.format(replicas=spec.replicas, sync_every=every, sharded=sharded if processes > 1 else "")
    )
    stage = Stage(console, folder)
    losses = _Followed(every)
    with _pool() as (pool, stop), stage.open():
        baselines = [pool.submit(train, settings, spec.replicas, every, stop) for train in (alone, data_parallel)]
        result = stage.play(spec, RUN_TIMEOUT_SECONDS * processes, losses)
        same = stage.fetch_model(result)
        with stage.watch.phase("baselines"):
            by_one, in_every_step = (baseline.result() for baseline in baselines)
        final = [replica.metrics["heldout"] for replica in result.replicas if "heldout" in replica.metrics]
        together = losses.curve(settings.steps, final[0] if final else None)
        training = {"replicas": spec.replicas, **spec.kwargs}
        losses_before = remember(folder / "losses-by-processes.json", training, processes, final[0] if final else None)
        report = Report(
            result,
            same,
            Losses(together, by_one, in_every_step, processes, losses_before),
            losses.utilisation,
            stage.watch.total,
            stage.watch.seconds,
        )
        if report.problems:
            stage.save_logs()
    plot(
        {
            f"{spec.replicas} replicas with DiLoCo, {settings.steps // every:,} exchanges": together,
            "one replica alone": by_one,
            f"data parallel, {settings.steps:,} exchanges": in_every_step,
        },
        folder / "losses.svg",
    )
    (folder / "result.json").write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    for line in verdict_lines(report, every):
        console.print(line, soft_wrap=True)
    console.print(f"\nWritten to {shown(folder)}: losses.svg (the curves), result.json (this)", soft_wrap=True)
    return not report.problems


@contextmanager
def _pool() -> Iterator[tuple[ThreadPoolExecutor, Event]]:
    """One thread for the baselines, which leaves a core to the replicas; always stopped at the end."""
    stop = Event()
    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            yield pool, stop
        finally:
            stop.set()


class _Followed:
    """Collects the replicas' losses from every status."""

    def __init__(self, sync_every: int) -> None:
        self._sync_every = sync_every
        self._by_round: dict[int, float] = {}
        self._utilisations: dict[tuple[int, int], float] = {}

    def __call__(self, status: RunStatus) -> None:
        for replica in status.replicas:
            metrics = replica.metrics
            if "heldout" in metrics and "round" in metrics:
                self._by_round[int(metrics["round"])] = metrics["heldout"]
            if "utilisation" in metrics:
                self._utilisations[replica.rank, int(metrics["round"])] = metrics["utilisation"]

    @property
    def utilisation(self) -> float:
        """Mean over replicas and rounds."""
        return fmean(self._utilisations.values()) if self._utilisations else 0.0

    def curve(self, steps: int, final: float | None) -> Curve:
        """The losses by inner steps, `final` being the last."""
        curve = [(round_ * self._sync_every, loss) for round_, loss in sorted(self._by_round.items())]
        return [point for point in curve if point[0] < steps] + ([] if final is None else [(steps, final)])


if __name__ == "__main__":
    sys.exit(
        perform(demo, "examples.char_gpt.demo", "A GPT on this machine.", folder=ROOT / "build" / "demo-gpt", spec=SPEC)
    )
