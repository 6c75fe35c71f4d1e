"""The whole of Muster on this machine: `make demo`, or `python -m examples.digits.demo` after `make setup`.

Starts the embedded cloud, deploys the real stack to it, launches examples/digits/run.yaml, takes one replica's
instance away in the middle, and holds what comes out against the same model trained by one process. Writes
build/demo/result.json; ends with 0 only if the run truly succeeded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from examples.digits.baseline import baseline_accuracy
from examples.digits.parameters import hold_the_same_bytes
from examples.digits.report import Report, verdict_lines
from examples.digits.saved_logs import save_logs
from examples.digits.stopwatch import Stopwatch
from infra.deploy import deploy
from infra.settings import Platform
from muster.client import Muster, RunStatus
from muster.client.watch import watching
from muster.contract.errors import MusterError
from muster.contract.result import Result
from muster.contract.spec import Spec
from muster.contract.spec_reader import parse_spec_text
from muster.local import LocalCloud, Settings
from muster.local.faults import LostInstance

ROOT = Path(__file__).resolve().parents[2]
SPEC = Path(__file__).with_name("run.yaml")
IMAGE = "muster-local/python"

VICTIM = 2
LOST_AFTER_ROUND = 8
POLL_SECONDS = 0.5
RUN_TIMEOUT_SECONDS = 240.0

_INTRODUCTION = """\
Muster demo: {replicas} replicas train one classifier of handwritten digits, each on
its own part of the data. They meet only in an S3 bucket, and one of them will
lose its instance.
"""


def main() -> int:
    """The demo: 0 when the run truly succeeded, 1 when it did not, 130 when interrupted."""
    parser = argparse.ArgumentParser(prog="python -m examples.digits.demo", description="Muster on this machine.")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "demo", help="for the result and the logs")
    folder = parser.parse_args().folder.absolute()
    console = Console(highlight=False)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    try:
        report = Demo(console, folder).run()
    except KeyboardInterrupt:
        console.print("Interrupted. Everything that was started has been stopped.")
        return 130
    except MusterError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        console.print(f"Logs: {_shown(folder)}", soft_wrap=True)
        return 1
    (folder / "result.json").write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    for line in verdict_lines(report):
        console.print(line, soft_wrap=True)
    console.print(f"\nWritten to {_shown(folder)}: result.json (this), run.json (Muster's own result)", soft_wrap=True)
    if report.problems:
        console.print(f"Logs: {_shown(folder / 'logs')}, {_shown(folder / 'cloud' / 'local.log')}", soft_wrap=True)
    return 1 if report.problems else 0


class Demo:
    """One demo with its files in `folder`."""

    def __init__(self, console: Console, folder: Path) -> None:
        self._console = console
        self._folder = folder
        self._spec = parse_spec_text(SPEC.read_text(encoding="utf-8"))
        self._watch = Stopwatch(console)

    def run(self) -> Report:
        """From nothing to a report; nothing of it runs any more afterwards.

        Raises:
            MusterError: a part could not be started, or the run could not be followed.
        """
        self._console.print(_INTRODUCTION.format(replicas=self._spec.replicas))
        with ThreadPoolExecutor(max_workers=1) as pool, self._cloud() as cloud:
            # Quick, and the deployment leaves it a core.
            baseline = pool.submit(baseline_accuracy, replicas=self._spec.replicas, **_shared_arguments(self._spec))
            self._deploy(cloud)
            result = self._train(cloud)
            (self._folder / "run.json").write_bytes(result.to_json())
            same = hold_the_same_bytes(cloud.client("s3"), (replica.checkpoint_uri for replica in result.replicas))
            report = Report(result, same, baseline.result(), self._watch.total, self._watch.seconds)
            if report.problems:
                save_logs(cloud, self._folder / "logs")
        return report

    @contextmanager
    def _cloud(self) -> Iterator[LocalCloud]:
        """The embedded cloud; from then on this process speaks to it alone."""
        settings = Settings(port=0, code=(ROOT,), end_with_parent=True)
        with self._console.status("starting the embedded cloud"), self._watch.phase("embedded cloud") as remarks:
            cloud = LocalCloud.start(self._folder / "cloud", settings)
            remarks.append(cloud.endpoint)
        with cloud:
            shutil.rmtree(self._folder / "logs", ignore_errors=True)
            environment = cloud.environment()
            os.environ.clear()
            os.environ.update(environment)
            yield cloud

    def _deploy(self, cloud: LocalCloud) -> None:
        with self._console.status("deploying the stack"), self._watch.phase("deployment") as remarks:
            deploy(
                cloud.environment(),
                target=Platform.LOCAL,
                context={"replica_image": IMAGE},
                outputs=self._folder / "deploy" / "outputs.json",
                log=self._folder / "deploy.log",
            )
            remarks.append("cdk bootstrap, cdk deploy")

    def _train(self, cloud: LocalCloud) -> Result:
        with self._watch.phase("run") as remarks:
            run = Muster().launch(self._spec)
            self._console.print(f"\nStartExecution {run.name}\n", soft_wrap=True)
            with watching(self._console) as show:
                run.wait(RUN_TIMEOUT_SECONDS, _Saboteur(self._console, cloud, show), POLL_SECONDS)
            self._console.print()
            remarks.append("StartExecution to settlement")
        return run.result()


class _Saboteur:
    """Shows every status, and takes one replica's instance away once it has been part of a few rounds."""

    def __init__(self, console: Console, cloud: LocalCloud, show: Callable[[RunStatus], None]) -> None:
        self._console = console
        self._cloud = cloud
        self._show = show
        self._done = False

    def __call__(self, status: RunStatus) -> None:
        self._show(status)
        victim = next((replica for replica in status.replicas if replica.rank == VICTIM), None)
        if self._done or victim is None or victim.job is None or (victim.round or 0) < LOST_AFTER_ROUND:
            return
        self._cloud.faults.add(LostInstance(job=victim.job))
        self._console.print(f"[yellow]⚡ took away the instance of replica {VICTIM} in round {victim.round}[/yellow]")
        self._done = True


def _shared_arguments(spec: Spec) -> dict[str, Any]:
    """What the baseline takes of the trainer's arguments: it has no outer optimizer, and nobody watches it."""
    own = {"outer_learning_rate", "outer_momentum", "seconds_per_round"}
    return {name: value for name, value in spec.kwargs.items() if name not in own}


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
