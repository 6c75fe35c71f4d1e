"""The packages of a project that uv has locked, as the `requirements.txt` that is installed for the replicas."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from muster.contract.errors import Problem, SpecError

LOCK = "uv.lock"
_PROJECT = "pyproject.toml"
# Without the project itself, whose source is delivered, and without what only its developers need.
_EXPORT = ("export", "--frozen", "--no-dev", "--no-emit-project", "--no-hashes", "--no-header", "--no-annotate")


def locked_requirements(folder: Path) -> bytes | None:
    """What `uv.lock` in `folder` pins; None without one, or where there is no `pyproject.toml` beside it.

    Raises:
        SpecError: there is no uv to read the lock, or uv refuses it.
    """
    if not (folder / LOCK).is_file() or not (folder / _PROJECT).is_file():
        return None
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    program = shutil.which("uv", path=beside)
    if program is None:
        remedy = "install uv, or write requirements.txt, which comes before it"
        raise SpecError([Problem("source_dir", f"{LOCK}, and no uv to read it", remedy)])
    command = [program, *_EXPORT, "--quiet", "--format", "requirements-txt", "--directory", str(folder)]
    outcome = subprocess.run(command, capture_output=True, check=False)
    if outcome.returncode != 0:
        said = outcome.stderr.decode(errors="replace").strip().splitlines() or ["uv printed no error"]
        remedy = "correct it with `uv lock`, or write requirements.txt, which comes before it"
        raise SpecError([Problem("source_dir", f"{LOCK}, which uv refuses: {said[0].removeprefix('error: ')}", remedy)])
    return outcome.stdout
