"""The whole of Muster on this machine: `make demo`, or `python -m examples.digits.demo` after `make setup`.

Starts the embedded cloud, deploys the real stack to it, launches examples/digits/run.yaml, takes one replica's
instance away in the middle, and holds what comes out against the same model trained by one process. Writes
build/demo/result.json; ends with 0 only if the run truly succeeded.
"""

from __future__ import annotations

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
FOLDER = ROOT / "build" / "demo"
SPEC = Path(__file__).with_name("run.yaml")
IMAGE = "muster-local/python"

VICTIM = 2
LOST_AFTER_ROUND = 8
POLL_SECONDS = 0.5
RUN_TIMEOUT_SECONDS = 240.0


def main() -> int:
    """The demo: 0 when the run truly succeeded, 1 when it did not, 130 when interrupted."""
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        report = _demo(console)
    except KeyboardInterrupt:
        console.print("Interrupted. Everything that was started has been stopped.")
        return 130
    except MusterError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        console.print(f"Logs: {_shown(FOLDER)}", soft_wrap=True)
        return 1
    (FOLDER / "result.json").write_text(json.dumps(report.document(), indent=2) + "\n", encoding="utf-8")
    for line in verdict_lines(report):
        console.print(line, soft_wrap=True)
    console.print(
        f"\nWritten to {_shown(FOLDER / 'result.json')}; Muster's own result.json lies beside it as run.json."
    )
    return 1 if report.problems else 0


def _demo(console: Console) -> Report:
    spec = parse_spec_text(SPEC.read_text(encoding="utf-8"))
    console.print(
        f"Muster demo: {spec.replicas} replicas train one classifier of handwritten digits, each on\n"
        "its own part of the data. They meet only in an S3 bucket, and one of them will\n"
        "lose its instance.\n"
    )
    watch = Stopwatch(console)
    with ThreadPoolExecutor(max_workers=1) as pool, _cloud(console, watch) as cloud:
        # Quick, and the deployment leaves it a core.
        baseline = pool.submit(baseline_accuracy, replicas=spec.replicas, **_shared_arguments(spec))
        _deploy(console, watch, cloud)
        result = _run(console, watch, cloud, spec)
        report = Report(result, baseline.result(), watch.total, watch.seconds)
        (FOLDER / "run.json").write_bytes(result.to_json())
        if report.problems:
            save_logs(cloud, FOLDER / "logs")
    return report


@contextmanager
def _cloud(console: Console, watch: Stopwatch) -> Iterator[LocalCloud]:
    """The embedded cloud, with its state in build/demo/cloud; from then on this process speaks to it alone."""
    settings = Settings(port=0, code=(ROOT,), end_with_parent=True)
    with console.status("starting the embedded cloud"), watch.phase("embedded cloud") as remarks:
        cloud = LocalCloud.start(FOLDER / "cloud", settings)
        remarks.append(cloud.endpoint)
    with cloud:
        shutil.rmtree(FOLDER / "logs", ignore_errors=True)
        environment = cloud.environment()
        os.environ.clear()
        os.environ.update(environment)
        yield cloud


def _deploy(console: Console, watch: Stopwatch, cloud: LocalCloud) -> None:
    with console.status("deploying the stack"), watch.phase("deployment") as remarks:
        deploy(
            cloud.environment(),
            target=Platform.LOCAL,
            context={"replica_image": IMAGE},
            outputs=FOLDER / "deploy" / "outputs.json",
            log=FOLDER / "deploy.log",
        )
        remarks.append("cdk bootstrap, cdk deploy")


def _run(console: Console, watch: Stopwatch, cloud: LocalCloud, spec: Spec) -> Result:
    with watch.phase("run"):
        run = Muster().launch(spec)
        console.print(f"\nStartExecution {run.name}\n", soft_wrap=True)
        with watching(console) as show:
            run.wait(RUN_TIMEOUT_SECONDS, _Saboteur(console, cloud, show), POLL_SECONDS)
        console.print()
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
    return str(path.relative_to(ROOT))


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
