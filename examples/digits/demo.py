"""The whole of Muster on this machine: `make demo`, or `python -m examples.digits.demo` after `make setup`.

Starts the embedded cloud, deploys the real stack to it, launches examples/digits/run.yaml, takes one replica's
instance away in the middle, and holds what comes out against the same model trained by one process. Writes
build/demo/result.json; ends with 0 only if the run truly succeeded.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from examples.digits.baseline import baseline_accuracy
from examples.digits.report import Report, verdict_lines
from examples.stage import ROOT, Stage, perform, replica_arguments, shown
from muster.client import RunStatus
from muster.contract.spec import Spec
from muster.local.faults import LostInstance

SPEC = Path(__file__).with_name("run.yaml")

VICTIM = 2
LOST_AFTER_ROUND = 8
RUN_TIMEOUT_SECONDS = 240.0

_INTRODUCTION = """\
Muster demo: {replicas} replicas train one classifier of handwritten digits, each on
its own part of the data. They meet only in an S3 bucket, and one of them will
lose its instance.
"""


def demo(console: Console, folder: Path, spec: Spec) -> bool:
    """From nothing to a verdict; whether the run truly succeeded.

    Raises:
        MusterError: a part could not be started, or the run could not be followed.
    """
    console.print(_INTRODUCTION.format(replicas=spec.replicas))
    stage = Stage(console, folder)
    with ThreadPoolExecutor(max_workers=1) as pool:
        # Quick, and the deployment leaves it a core. Nobody watches the baseline, and it has no outer optimizer.
        shared = replica_arguments(spec, "outer_learning_rate", "outer_momentum", "seconds_per_round")
        baseline = pool.submit(baseline_accuracy, replicas=spec.replicas, **shared)
        with stage.open():
            result = stage.play(spec, RUN_TIMEOUT_SECONDS, _Saboteur(stage))
            same = stage.same_checkpoints(result)
            report = Report(result, same, baseline.result(), stage.watch.total, stage.watch.seconds)
            if report.problems:
                stage.save_logs()
    (folder / "result.json").write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    for line in verdict_lines(report):
        console.print(line, soft_wrap=True)
    console.print(f"\nWritten to {shown(folder)}: result.json (this), run.json (Muster's own result)", soft_wrap=True)
    console.print(f"The run's page, for a browser: {shown(folder / 'report.html')}", soft_wrap=True)
    return not report.problems


class _Saboteur:
    """Takes one replica's instance away once it has been part of a few rounds."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._done = False

    def __call__(self, status: RunStatus) -> None:
        victim = next((replica for replica in status.replicas if replica.rank == VICTIM), None)
        if self._done or victim is None or victim.job is None or (victim.round or 0) < LOST_AFTER_ROUND:
            return
        self._stage.cloud.faults.add(LostInstance(job=victim.job))
        self._stage.console.print(
            f"[yellow]⚡ took away the instance of replica {VICTIM} in round {victim.round}[/yellow]"
        )
        self._done = True


if __name__ == "__main__":
    sys.exit(
        perform(demo, "examples.digits.demo", "Muster on this machine.", folder=ROOT / "build" / "demo", spec=SPEC)
    )
