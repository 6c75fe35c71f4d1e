"""Muster over several regions, on this machine: `make demo-places`, or `python -m examples.digits.places_demo`.

Starts the embedded cloud with three places in two accounts, deploys the real stack with its outposts, and launches
examples/digits/places.yaml with six replicas. One finds no capacity in Tokyo and starts at home. Oregon goes dark in
the middle: the others train on, and its replicas go elsewhere. Writes build/demo-places/result.json; ends with 0 only
if the run truly succeeded.
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
from muster import FailureClass, Result, RunStatus, Spec
from muster.local.admin_client import PlacedFault
from muster.local.faults import CapacityError, DarkRegion
from muster.options.places.local.link_settings import LinkClient
from muster.options.places.local.place_settings import PlacesSettings

SPEC = Path(__file__).with_name("places.yaml")

ADDED = ["oregon=us-west-2", "tokyo=ap-northeast-1/210987654321"]
SHORT, DARK = 2, "oregon"
DARK_AFTER = 6  # rounds
RUN_TIMEOUT_SECONDS = 240.0

_INTRODUCTION = """\
Muster demo: {replicas} replicas in three regions of two accounts train one classifier of
handwritten digits. One finds no capacity in Tokyo. Oregon goes dark in the middle: the
others train on, and its replicas start again elsewhere.
"""


def demo(console: Console, folder: Path, spec: Spec) -> bool:
    """Run the demo; returns whether the run succeeded with the expected result.

    Raises:
        MusterError: a part could not be started, or the run could not be followed.
    """
    console.print(_INTRODUCTION.format(replicas=spec.replicas))
    stage = Stage(console, folder, {"places": PlacesSettings(add=ADDED)})
    with ThreadPoolExecutor(max_workers=1) as pool:
        shared = replica_arguments(spec, "outer_learning_rate", "outer_momentum", "seconds_per_round")
        baseline = pool.submit(baseline_accuracy, replicas=spec.replicas, **shared)
        with stage.open():
            stage.cloud.faults.add(CapacityError(job=f"*-r{SHORT}-a1", place="tokyo"))
            result = stage.play(spec, RUN_TIMEOUT_SECONDS, _Events(stage))
            for link in LinkClient(stage.cloud).bytes():
                console.print(f"  {link.source:>6} → {link.target:<6} {link.bytes / 1e6:>7.2f} MB of S3")
            report = reported(stage, result, baseline.result(), _missed)
    return concluded(console, folder, report)


def _missed(result: Result) -> Iterator[str]:
    """What should have happened to the run and has not."""
    attempts = [replica.attempts for replica in result.replicas]
    if not any(one.failure_class is FailureClass.CAPACITY for one in attempts[SHORT]):
        yield f"replica {SHORT} found capacity at once"
    lost = [own for own in attempts if own[0].where is not None and own[0].where.place == DARK]
    moved = [own for own in lost if own[-1].where is not None and own[-1].where.place != DARK]
    if not lost or moved != lost:
        yield f"{len(lost)} replicas began in {DARK}, and {len(moved)} of them ended elsewhere"


class _Events:
    """Cuts a region off, connects it again once its replicas train elsewhere, and prints that."""

    def __init__(self, stage: Stage) -> None:
        self._console, self._faults = stage.console, stage.cloud.faults
        self._dark: PlacedFault | None = None
        self._is_back = False

    def __call__(self, status: RunStatus) -> None:
        if self._dark is None and (status.round or 0) >= DARK_AFTER:
            self._dark = self._faults.add(DarkRegion(place=DARK))
            self._console.print(f"[yellow]{DARK} is dark[/yellow]")
        elsewhere = all(one.round and one.where and one.where.place != DARK for one in status.replicas)
        if self._dark is not None and elsewhere and not self._is_back:
            self._dark.remove()
            self._is_back = True
            self._console.print(f"[yellow]all train elsewhere; {DARK} answers again[/yellow]")


if __name__ == "__main__":
    folder = ROOT / "build" / "demo-places"
    name = "examples.digits.places_demo"
    description = "Muster over several regions, on this machine."
    sys.exit(perform(demo, name, description, folder=folder, spec=SPEC))
