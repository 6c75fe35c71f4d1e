"""What every demo needs around its run: the embedded cloud with the stack, and a clean shutdown."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from rich.console import Console

from examples.parameters import stored_parameters
from examples.phase_timer import PhaseTimer
from examples.saved_logs import save_logs
from muster import MusterError
from muster.client.client_errors import SpecFileError, os_reason
from muster.contract.spec.spec_reader import parse_spec_text
from muster.infra.deploy.deployment import deploy
from muster.infra.settings.stack_settings import LOCAL_IMAGE, Platform, ReplicasTable, StackSettings
from muster.local import LocalCloud, Settings

if TYPE_CHECKING:
    from muster import Result, RunStatus, Spec

ROOT = Path(__file__).resolve().parents[1]
POLL_SECONDS = 0.5


class Stage:
    """An embedded cloud with the real stack deployed to it; its files are in `folder`.

    While it is open, this process calls that cloud alone.
    """

    def __init__(
        self,
        console: Console,
        folder: Path,
        services: Mapping[str, BaseModel] | None = None,
        tables: Mapping[str, Any] | None = None,
    ) -> None:
        """`services`: those that the cloud has besides, with their settings; `tables`: of the stack's settings."""
        self.console = console
        self.folder = folder
        self._services = services or {}
        self._tables = tables or {}
        self.watch = PhaseTimer(console)
        self._cloud: LocalCloud | None = None

    @property
    def cloud(self) -> LocalCloud:
        """The cloud, while the stage is open."""
        if self._cloud is None:
            message = "The stage is not open."
            raise RuntimeError(message)
        return self._cloud

    @contextmanager
    def open(self) -> Iterator[None]:
        """Start the cloud and deploy; stops everything at the end.

        Raises:
            MusterError: a part could not be started.
        """
        settings = Settings(port=0, code=(ROOT,), end_with_parent=True, services=self._services)
        with self.console.status("starting the embedded cloud"), self.watch.phase("embedded cloud") as remarks:
            cloud = LocalCloud.start(self.folder / "cloud", settings)
            remarks.append(cloud.endpoint)
        with cloud:
            self._cloud = cloud
            shutil.rmtree(self.folder / "logs", ignore_errors=True)
            environment = cloud.environment()
            os.environ.clear()
            os.environ.update(environment)
            with self.console.status("deploying the stack"), self.watch.phase("deployment") as remarks:
                remarks.append(self._deploy(environment))
            yield

    def _deploy(self, environment: Mapping[str, str]) -> str:
        """Deploy the stack; returns what was run."""
        log = self.folder / "deploy.log"
        if "places" not in self._services:
            stack = StackSettings(replicas=ReplicasTable(image=LOCAL_IMAGE), **self._tables)
            outputs = self.folder / "deploy" / "outputs.json"
            deploy(environment, target=Platform.LOCAL, settings=stack, outputs=outputs, log=log)
            return "cdk bootstrap, cdk deploy"
        program = str(Path(sys.executable).with_name("muster"))
        command = [program, "deploy", "--target", "local"]  # the shell's variables name the places
        options: dict[str, Any] = {"cwd": self.folder, "env": environment, "stderr": subprocess.STDOUT}
        with log.open("w") as output:
            done = subprocess.run(command, stdout=output, check=False, **options)
        if done.returncode:
            message = f"`muster deploy` failed: {shown(log)} says why."
            raise MusterError(message)
        return "muster deploy"

    def play(self, spec: Spec, timeout_seconds: float, follow: Callable[[RunStatus], None]) -> Result:
        """Launch `spec`, pass every status to `follow` and show it; returns the result."""
        # The cloud starts while these are imported: see `open`.
        from muster import Muster  # noqa: PLC0415
        from muster.client.cli.run_watch import watching  # noqa: PLC0415

        with self.watch.phase("run") as remarks:
            run = Muster().launch(spec)
            self.console.print(f"\nStartExecution {run.name}\n", soft_wrap=True)
            with watching(self.console) as (show, _):

                def seen(status: RunStatus) -> None:
                    follow(status)
                    show(status)

                run.wait(timeout_seconds, seen, POLL_SECONDS)
            self.console.print()
            remarks.append("StartExecution to settlement")
        result = run.result()
        (self.folder / "run.json").write_bytes(result.to_json())
        (self.folder / "report.html").write_bytes(run.report())
        return result

    def fetch_model(self, result: Result) -> bool:
        """Fetch the run's model; whether it holds the parameters that the replicas reported.

        Raises:
            MusterError: it cannot be fetched.
        """
        from muster import Muster, ReplicaOutcome  # noqa: PLC0415

        folder = self.folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        if result.model is None:
            return False
        Muster().run(result.run).model_download(folder).fetch()
        stored = stored_parameters(folder / "model.safetensors")
        trained = [replica for replica in result.replicas if replica.outcome is not ReplicaOutcome.PARKED]
        return {replica.checksum for replica in trained} == {stored}

    def save_logs(self) -> None:
        """Save the cloud's logs, for debugging."""
        save_logs(self.cloud, self.folder / "logs")


def perform(
    demo: Callable[[Console, Path, Spec], bool], program: str, description: str, *, folder: Path, spec: Path
) -> int:
    """Run a demo from a command line: 0 when it succeeded, 1 when it did not, 130 when interrupted."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
    parser.add_argument("--folder", type=Path, default=folder, help=f"for the result and the logs ({shown(folder)})")
    parser.add_argument("--spec", type=Path, default=spec, help=f"what to launch ({shown(spec)})")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    console = Console(highlight=False)
    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, _interrupt)
    try:
        succeeded = demo(console, folder, _read_spec(arguments.spec))
    except KeyboardInterrupt:
        console.print("Interrupted. Everything that was started has been stopped.")
        return 130
    except MusterError as error:
        console.print(str(error), style="red", markup=False, soft_wrap=True)
        console.print(f"Logs: {shown(folder)}", soft_wrap=True)
        return 1
    if not succeeded:
        console.print(f"Logs: {shown(folder / 'logs')}, {shown(folder / 'cloud' / 'local.log')}", soft_wrap=True)
    return 0 if succeeded else 1


def shown(path: Path) -> str:
    """A path relative to the repository if it is in it."""
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def _read_spec(path: Path) -> Spec:
    try:
        return parse_spec_text(sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecFileError(str(path), os_reason(error)) from None


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def replica_arguments(spec: Spec, *own: str) -> dict[str, Any]:
    """The trainer's arguments except `own`: those of a baseline without an outer optimizer."""
    return {name: value for name, value in spec.kwargs.items() if name not in own}
