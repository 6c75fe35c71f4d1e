"""The whole of Muster on this machine: `make demo`, or `python -m examples.digits.demo` after `make setup`.

Starts the embedded cloud, deploys the real stack to it, launches examples/digits/run.yaml, takes one replica's
instance away in the middle, and holds what comes out against the same model trained by one process. Writes
build/demo/result.json; ends with 0 only if the run truly succeeded. FAULTS=quota lets one replica wait for quota first.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from examples.stage import ROOT, Stage, perform, replica_arguments
from muster import FailureClass, MusterError
from muster.contract.spec.retry_budget import Budget
from muster.local.faults import LostInstance, QuotaError

if TYPE_CHECKING:
    from muster import RunStatus, Spec

SPEC = Path(__file__).with_name("run.yaml")

VICTIM = 2
LOST_AFTER = 0.9
"""A share of the least time that the rounds take: on any machine the replica is still training then."""
RUN_TIMEOUT_SECONDS = 240.0

_INTRODUCTION = """\
Muster demo: {replicas} replicas train one classifier of handwritten digits, each on
its own part of the data. They exchange through an S3 bucket alone, and one of them
will lose its instance.
"""
# The demo waits seconds for quota, where a real run waits minutes.
_QUOTA_BUDGET = Budget(max_reruns=5, delay_seconds=4)
_QUOTA_VICTIM, _QUOTA_REFUSALS = 1, 2


class Fault(StrEnum):
    """The faults that the environment variable FAULTS can add to the lost instance."""

    QUOTA = "quota"


def asked_faults(text: str) -> set[Fault]:
    """The faults in a comma-separated list.

    Raises:
        MusterError: one of them is unknown.
    """
    names = {name for name in text.split(",") if name}
    unknown = sorted(names - set(Fault))
    if unknown:
        message = f"FAULTS is {', '.join(unknown)}; allowed: {', '.join(Fault)}, or leave it unset."
        raise MusterError(message)
    return {Fault(name) for name in names}


def demo(console: Console, folder: Path, spec: Spec) -> bool:
    """Run the demo; returns whether the run succeeded with the expected result.

    Raises:
        MusterError: a part could not be started, or the run could not be followed.
    """
    faults = asked_faults(os.environ.get("FAULTS", ""))
    console.print(_INTRODUCTION.format(replicas=spec.replicas))
    stage = Stage(console, folder)
    with ThreadPoolExecutor(max_workers=1) as pool:
        # Quick, and the deployment leaves it a core. The baseline needs no delay, and it has no outer optimizer.
        shared = replica_arguments(spec, "outer_learning_rate", "outer_momentum", "seconds_per_round")
        baseline = pool.submit(_baseline, replicas=spec.replicas, **shared)
        with stage.open():
            if Fault.QUOTA in faults:
                spec = spec.model_copy(update={"reruns": {FailureClass.QUOTA: _QUOTA_BUDGET}})
                stage.cloud.faults.add(QuotaError(job=f"*-r{_QUOTA_VICTIM}-*", count=_QUOTA_REFUSALS))
            result = stage.play(spec, RUN_TIMEOUT_SECONDS, _Saboteur(stage, spec))
            from examples.digits.report import concluded, reported  # noqa: PLC0415

            report = reported(stage, result, baseline.result())
    return concluded(console, folder, report)


def _baseline(**arguments: Any) -> float:
    """Imports NumPy and trains while the cloud starts and the stack is deployed."""
    from examples.digits.baseline import baseline_accuracy  # noqa: PLC0415

    return baseline_accuracy(**arguments)


class _Saboteur:
    """Takes one replica's instance away during its rounds, and prints that."""

    def __init__(self, stage: Stage, spec: Spec) -> None:
        self._console = stage.console
        trains = replica_arguments(spec)
        seconds = LOST_AFTER * trains.get("rounds", 0) * trains.get("seconds_per_round", 0.0)
        self._lost = stage.cloud.faults.add(LostInstance(job=f"*-r{VICTIM}-a1", after_seconds=seconds))
        self._printed = False

    def __call__(self, status: RunStatus) -> None:
        if not self._printed and self._lost.fired:
            round_ = next((replica.round for replica in status.replicas if replica.rank == VICTIM), None)
            when = f"in round {round_}" if round_ else "before its first round was over"
            self._console.print(f"[yellow]⚡ terminated the instance of replica {VICTIM} {when}[/yellow]")
            self._printed = True


if __name__ == "__main__":
    sys.exit(
        perform(demo, "examples.digits.demo", "Muster on this machine.", folder=ROOT / "build" / "demo", spec=SPEC)
    )
