"""Replicas that come and go, on this machine: `make demo-elastic`, or `python -m examples.digits.seats_demo`.

Starts the embedded cloud, deploys the real stack to it, and launches examples/digits/seats.yaml with two replicas. It
asks for six while they train, of which one finds no capacity at first and another one loses its instance, and then for
three. Writes build/demo-elastic/result.json; ends with 0 only if the run truly succeeded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from examples.digits.baseline import baseline_accuracy
from examples.digits.report import concluded, reported
from examples.stage import ROOT, Stage, perform, replica_arguments
from muster import FailureClass, Muster, ReplicaOutcome, Result, RunStatus, Spec
from muster.local.admin_client import PlacedFault
from muster.local.faults import CapacityError, LostInstance

SPEC = Path(__file__).with_name("seats.yaml")

MORE, FEWER = 6, 3
MORE_AFTER = 3  # rounds
ROUNDS_TOGETHER = 4
"""For so many rounds all of them train before some leave."""
SHORT, VICTIM = 4, 1
ROUNDS = 30
"""About as many as the epochs of the spec take: the baseline trains as long."""
RUN_TIMEOUT_SECONDS = 240.0

_INTRODUCTION = """\
Muster demo: {start} replicas train one classifier of handwritten digits. While they train,
four more join, one of which finds no capacity at first, another one loses its instance,
and in the end three leave. The others train on, and no example is lost or trained twice.
"""


def demo(console: Console, folder: Path, spec: Spec) -> bool:
    """Run the demo; returns whether the run succeeded with the expected result.

    Raises:
        MusterError: a part could not be started, or the run could not be followed.
    """
    console.print(_INTRODUCTION.format(start=spec.elastic.start if spec.elastic else spec.replicas))
    stage = Stage(console, folder)
    with ThreadPoolExecutor(max_workers=1) as pool:
        baseline = pool.submit(
            baseline_accuracy, replicas=FEWER, rounds=ROUNDS, inner_steps=replica_arguments(spec)["inner_steps"]
        )
        with stage.open():
            stage.cloud.faults.add(CapacityError(job=f"*-r{SHORT}-a1"))
            result = stage.play(spec, RUN_TIMEOUT_SECONDS, _Events(stage))
            report = reported(stage, result, baseline.result(), _missed)
    return concluded(console, folder, report)


def _missed(result: Result) -> Iterator[str]:
    """What should have happened to the run and has not."""
    attempts = [replica.attempts for replica in result.replicas]
    if not any(one.failure_class is FailureClass.CAPACITY for one in attempts[SHORT]):
        yield f"replica {SHORT} found capacity at once"
    if len(attempts[VICTIM]) < 2:
        yield f"replica {VICTIM} was not rerun: the lost instance was not noticed"
    parked = [replica.rank for replica in result.replicas if replica.outcome is ReplicaOutcome.PARKED]
    if len(parked) != MORE - FEWER or not all(attempts[rank] for rank in parked):
        yield f"{len(parked)} replicas are parked; {MORE - FEWER} were to train and leave"


class _Events:
    """Asks for more replicas and then for fewer, loses an instance between, and prints that."""

    def __init__(self, stage: Stage) -> None:
        self._console, self._faults = stage.console, stage.cloud.faults
        self._lost: PlacedFault | None = None
        self._together_since: int | None = None
        self._asked = 0

    def __call__(self, status: RunStatus) -> None:
        round_ = status.round or 0
        if not self._asked and round_ >= MORE_AFTER:
            self._ask(status, MORE, f"in round {round_}: four more join")
        since = self._together_since
        lost = self._lost is not None and self._lost.fired
        if since is None and lost and all((one.round or 0) >= round_ - 1 for one in status.replicas):
            self._together_since = round_
            self._console.print(f"[yellow]all {MORE} train together in round {round_}[/yellow]")
        if since is not None and self._asked == MORE and round_ >= since + ROUNDS_TOGETHER:
            self._ask(status, FEWER, f"in round {round_}: three leave")

    def _ask(self, status: RunStatus, replicas: int, words: str) -> None:
        Muster().scale(status.run, replicas)
        self._asked = replicas
        if replicas == MORE:
            self._lost = self._faults.add(LostInstance(job=f"*-r{VICTIM}-a1"))
        self._console.print(f"[yellow]asked for {replicas} replicas {words}[/yellow]")


if __name__ == "__main__":
    folder = ROOT / "build" / "demo-elastic"
    name = "examples.digits.seats_demo"
    sys.exit(perform(demo, name, "Replicas that come and go, on this machine.", folder=folder, spec=SPEC))
