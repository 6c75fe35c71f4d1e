"""Runs the commands of a deployment side by side and reports the one that failed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.infra.deploy.cdk_tools import DeployError

_TAIL_LINES = 30


@dataclass(frozen=True)
class Step:
    """A command that was started."""

    name: str
    process: subprocess.Popen[bytes]


class CommandRunner:
    """Starts commands, all with one working directory, one environment and one log."""

    def __init__(self, folder: Path, environment: Mapping[str, str], log: Path | None) -> None:
        self._folder = folder
        self._environment = environment
        self._log = log
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.unlink(missing_ok=True)

    def start(self, name: str, command: Sequence[str], variables: Mapping[str, str | None] | None = None) -> Step:
        """Start `command`; `name` is what errors call it. Of the environment `variables` differ, None is left out."""
        changed = {**self._environment, **(variables or {})}
        environment = {name: value for name, value in changed.items() if value is not None}
        if self._log is None:
            return Step(name, subprocess.Popen(command, cwd=self._folder, env=environment))
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, cwd=self._folder, env=environment, stdout=log, stderr=log)
        return Step(name, process)

    def finish(self, steps: Sequence[Step]) -> None:
        """Wait for all `steps`; after the first failure the others are terminated.

        Raises:
            DeployError: one ended with an exit code other than 0.
        """
        try:
            for step in steps:
                if step.process.wait() != 0:
                    raise DeployError(self._failure(step))
        finally:
            for step in steps:
                if step.process.poll() is None:
                    step.process.terminate()
                    step.process.wait()

    def _failure(self, step: Step) -> str:
        failure = f"`{step.name}` ended with exit code {step.process.returncode}"
        if self._log is None:
            return f"The stack was not deployed: {failure}; see its output above."
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = "\n".join(f"  | {line}" for line in lines[-_TAIL_LINES:])
        return f"The stack was not deployed: {failure}. The end of {self._log}:\n{tail}"
