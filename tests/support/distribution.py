"""An environment outside the clone in which the wheel is installed."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from muster.infra.release.artifacts import install_wheel, make_environment, user_environment
from tests.support.source_patch import ROOT


class Installation:
    """An environment of its own with the wheel in it, used in a folder outside the clone."""

    def __init__(self, folder: Path, wheel: Path, extra: str) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self.environment = user_environment(folder / "cache")
        self._python = make_environment(folder / "environment")
        install_wheel(self._python, wheel, extra, ["--constraint", str(ROOT / "requirements.txt")])

    @property
    def packages(self) -> Path:
        """The folder of the installed packages."""
        [found] = (self._python.parents[1] / "lib").glob("python*/site-packages")
        return found

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """The command `muster` of the environment, which ends with the exit code `code`."""
        command = [str(self._python.with_name("muster")), *arguments]
        shell = self.environment if environment is None else dict(environment)
        done = subprocess.run(command, cwd=self.folder, env=shell, capture_output=True, text=True, check=False)
        assert done.returncode == code, f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done
