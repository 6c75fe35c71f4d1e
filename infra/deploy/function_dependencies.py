"""The functions' pinned dependencies, installed by uv for the platform that runs them, and their bytecode."""

from __future__ import annotations

import os
import platform as host
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

from muster.contract.errors import ConfigurationError
from muster.infra.deploy.bundled_models import OPERATIONS, cut_down
from muster.infra.packages import uv_pip
from muster.infra.settings.stack_settings import Platform

LAMBDA_PYTHON = "3.13"
LAMBDA_WHEELS = "aarch64-manylinux2014"
# Notes of where each wheel came from and when, and the list that names them: they differ between machines.
INSTALLATION_NOTES = ("uv_cache.json", "RECORD")

_SCRIPTS_AND_EXAMPLES = ("bin", "boto3/examples")
_TASK_ROOT = "/var/task"  # Lambda: the folder of the code, which tracebacks name


class BundleError(ConfigurationError):
    """The dependencies of the functions could not be installed."""


@dataclass(frozen=True)
class WheelTarget:
    """The platform that will run the code."""

    key: str
    uv_options: tuple[str, ...]
    compiler: str | None
    """A Python of the version that will run the code. Without one there is no bytecode, and functions start slower."""


def target_of(platform: Platform) -> WheelTarget:
    """What uv and the compiler need to know of `platform`."""
    tag = sys.implementation.cache_tag
    if platform is Platform.LOCAL:
        key = f"local-{tag}-{sysconfig.get_platform()}"
        return WheelTarget(key, (), sys.executable)
    options = ("--python-platform", LAMBDA_WHEELS, "--python-version", LAMBDA_PYTHON)
    # Python ignores bytecode of another version.
    same = ".".join(host.python_version_tuple()[:2]) == LAMBDA_PYTHON
    compiler = sys.executable if same else _working_python(f"python{LAMBDA_PYTHON}")
    if compiler is None:
        note = f"There is no python{LAMBDA_PYTHON} on the PATH: the functions have no bytecode and start more slowly."
        print(note, file=sys.stderr)
    return WheelTarget(f"aws-{LAMBDA_PYTHON}-{'compiled' if compiler else 'sources'}", options, compiler)


def _working_python(name: str) -> str | None:
    """The interpreter `name` if it exists and starts: version managers leave names behind that do not."""
    path = shutil.which(name)
    if path is None or subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode != 0:
        return None
    return path


def install(requirements: Path, target: WheelTarget, destination: Path) -> None:
    """Install `requirements` into a folder beside `destination`, then move it there: a failure leaves nothing.

    Raises:
        BundleError: uv could not install them.
    """
    with tempfile.TemporaryDirectory(dir=destination.parent) as staging:
        folder = Path(staging) / "dependencies"
        command, environment = uv_pip(
            [
                *("install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target", str(folder)),
                *target.uv_options,
                *("--requirement", str(requirements)),
            ]
        )
        outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if outcome.returncode != 0:
            reason = " ".join(outcome.stderr.split()) or f"exit code {outcome.returncode}"
            message = f"uv cannot install {requirements} for the functions: {reason}"
            raise BundleError(message)
        _prune(folder)
        compile_sources(target, folder)
        try:
            folder.rename(destination)
        except OSError:
            # Another process was faster, with the same result.
            if not destination.is_dir():
                raise


def _prune(folder: Path) -> None:
    """Remove what no function uses, and uv's notes about this machine."""
    (folder / ".lock").unlink(missing_ok=True)
    for note in INSTALLATION_NOTES:
        for path in folder.glob(f"*.dist-info/{note}"):
            path.unlink()
    for name in _SCRIPTS_AND_EXAMPLES:
        shutil.rmtree(folder / name, ignore_errors=True)
    data = folder / "botocore" / "data"
    # 27 of botocore's 29 MB describe services that no function calls.
    for path in data.iterdir():
        if path.is_dir() and path.name not in OPERATIONS:
            shutil.rmtree(path)
    cut_down(data)


def compile_sources(target: WheelTarget, folder: Path) -> None:
    """Write bytecode beside the sources: a cold import takes 0.4 s of CPU instead of 0.85 s, and Lambda keeps none.

    It is not checked against the sources, which do not change in a bundle and have no real modification times.
    """
    if target.compiler is None:
        return
    command = [
        *(target.compiler, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
        *("-s", str(folder), "-p", _TASK_ROOT, str(folder)),
    ]
    # Sets of constants are marshalled in the order of their hashes, which this seed fixes.
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})
