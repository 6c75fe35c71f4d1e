"""Wheel and sdist of this tree, and an environment outside it in which the wheel is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from muster.infra.packages import uv_pip
from tests.support.source_patch import ROOT, copied_tree

_UV = str(Path(sys.executable).with_name("uv"))


def build(folder: Path) -> tuple[Path, Path, Path]:
    """The sdist, the wheel that is built from it, and the wheel that is built from the tree.

    Nothing is downloaded: setuptools is installed here.
    """
    with copied_tree() as tree:
        for name, options in (("released", ()), ("direct", ("--wheel",))):
            command = [_UV, "build", "--quiet", "--no-build-isolation", "--python", sys.executable, *options]
            subprocess.run([*command, "--out-dir", str(folder / name), str(tree)], check=True)
    [sdist] = (folder / "released").glob("*.tar.gz")
    [released], [direct] = ((folder / name).glob("*.whl") for name in ("released", "direct"))
    return sdist, released, direct


class Installation:
    """An environment of its own with the wheel in it, used in a folder outside the clone."""

    def __init__(self, folder: Path, wheel: Path, extra: str) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self._python = folder / "environment" / "bin" / "python"
        self._cache = folder / "cache"
        subprocess.run([_UV, "venv", "--quiet", "--python", sys.executable, str(folder / "environment")], check=True)
        wanted = f"muster-train[{extra}] @ {wheel.as_uri()}" if extra else f"muster-train @ {wheel.as_uri()}"
        options = ["--quiet", "--python", str(self._python), "--constraint", str(ROOT / "requirements.txt")]
        command, environment = uv_pip(["install", *options, wanted])
        subprocess.run(command, env=environment, check=True)

    @property
    def packages(self) -> Path:
        """The folder of the installed packages."""
        [found] = (self._python.parents[1] / "lib").glob("python*/site-packages")
        return found

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, code: int = 0, program: str = "muster"
    ) -> subprocess.CompletedProcess[str]:
        """A program of the environment, which ends with the exit code `code`."""
        command = [str(self._python.with_name(program)), *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(environment), capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{' '.join(arguments)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """`base`, or this process's environment, as the shell of a user who has no clone has it.

        What uv has downloaded is used again: the lock pins the same.
        """
        chosen = dict(os.environ if base is None else base)
        for name in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE"):
            chosen.pop(name, None)
        asked = subprocess.run([_UV, "cache", "dir"], capture_output=True, text=True, check=True)
        return {**chosen, "XDG_CACHE_HOME": str(self._cache), "UV_CACHE_DIR": asked.stdout.strip()}
