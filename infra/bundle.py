"""The functions' code as one zip file, made without docker: our packages and the pinned dependencies.

The zip depends on its inputs alone (sources, requirements, platform, compiler): the same inputs give the same bytes,
so CDK sees a change only where there is one. Dependencies are installed once per platform and requirements file.
"""

from __future__ import annotations

import hashlib
import os
import platform as host
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.packages import uv_pip
from infra.settings import Platform
from infra.zip_file import write_zip
from muster.contract.errors import ConfigurationError

LAMBDA_PYTHON = "3.13"
LAMBDA_WHEELS = "aarch64-manylinux2014"

_SOURCES = ("muster/__init__.py", "muster/contract", "muster/control", "muster/report", "lambdas")
_ASSETS = "muster/report/assets"  # what the page is made of
_REQUIREMENTS = "lambdas/requirements.txt"
# 27 of botocore's 29 MB describe services that no function calls.
_SERVICE_MODELS = frozenset({"events", "s3", "sagemaker", "scheduler", "sns", "stepfunctions", "sts"})
_SCRIPTS_AND_EXAMPLES = ("bin", "boto3/examples")
# Where each wheel came from and when, and the list that names this note: they differ between machines.
_INSTALLATION_NOTES = ("uv_cache.json", "RECORD")
_TASK_ROOT = "/var/task"  # Lambda: where the code lies; tracebacks name it


class BundleError(ConfigurationError):
    """The dependencies of the functions could not be installed."""


@dataclass(frozen=True)
class _Target:
    """Where the bundle will run, and what makes it so."""

    key: str
    uv_options: tuple[str, ...]
    compiler: str | None
    """A Python of the version that will run the bundle. Without one it holds sources only and starts slower."""


def build_bundle(root: Path, platform: Platform) -> Path:
    """The path of the zip for `platform`, built under `root`/build/bundle unless it is there.

    Raises:
        BundleError: uv could not install the dependencies.
    """
    target = _target(platform)
    folder = root / "build" / "bundle"
    folder.mkdir(parents=True, exist_ok=True)
    requirements = root / _REQUIREMENTS
    pruning = ",".join([*sorted(_SERVICE_MODELS), *_INSTALLATION_NOTES]).encode()
    dependencies = folder / f"{target.key}-{_digest([requirements.read_bytes(), pruning])}"
    if not dependencies.is_dir():
        _install(requirements, target, dependencies)
    sources = list(_source_files(root))
    parts = (part for path in sources for part in (str(path.relative_to(root)).encode(), path.read_bytes()))
    content = f"{dependencies.name} {_digest(parts)}"
    archive = folder / f"{target.key}.zip"
    if _content(archive) != content:
        with tempfile.TemporaryDirectory(dir=folder) as staging:
            _copy(root, sources, Path(staging) / "code")
            _compile(target, Path(staging) / "code")
            _zip([dependencies, Path(staging) / "code"], archive, content)
    return archive


def _content(archive: Path) -> str | None:
    """What the zip says it was made from."""
    if not archive.exists():
        return None
    with zipfile.ZipFile(archive) as file:
        return file.comment.decode()


def _target(platform: Platform) -> _Target:
    tag = sys.implementation.cache_tag
    if platform is Platform.LOCAL:
        key = f"local-{tag}-{sysconfig.get_platform()}"
        return _Target(key, (), sys.executable)
    options = ("--python-platform", LAMBDA_WHEELS, "--python-version", LAMBDA_PYTHON)
    # Bytecode of another version would be ignored, so only the very version may compile.
    same = ".".join(host.python_version_tuple()[:2]) == LAMBDA_PYTHON
    compiler = sys.executable if same else _working_python(f"python{LAMBDA_PYTHON}")
    if compiler is None:
        note = (
            f"No python{LAMBDA_PYTHON} on the PATH: the functions carry no bytecode, and their cold starts take longer."
        )
        print(note, file=sys.stderr)
    return _Target(f"aws-{LAMBDA_PYTHON}-{'compiled' if compiler else 'sources'}", options, compiler)


def _working_python(name: str) -> str | None:
    """The interpreter `name` if it is there and starts (version managers leave names that do not)."""
    path = shutil.which(name)
    if path is None or subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode != 0:
        return None
    return path


def _digest(parts: Iterator[bytes] | list[bytes]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.hexdigest()[:16]


def _source_files(root: Path) -> Iterator[Path]:
    for name in _SOURCES:
        path = root / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]
    yield from sorted((root / _ASSETS).iterdir())


def _install(requirements: Path, target: _Target, destination: Path) -> None:
    """Install into a folder beside `destination` and move it there, so that a broken attempt leaves nothing."""
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
        _compile(target, folder)
        try:
            folder.rename(destination)
        except OSError:
            # Another process was faster, with the same result.
            if not destination.is_dir():
                raise


def _prune(folder: Path) -> None:
    """Remove what no function uses, and what uv notes about this machine."""
    (folder / ".lock").unlink(missing_ok=True)
    for note in _INSTALLATION_NOTES:
        for path in folder.glob(f"*.dist-info/{note}"):
            path.unlink()
    for name in _SCRIPTS_AND_EXAMPLES:
        shutil.rmtree(folder / name, ignore_errors=True)
    for path in (folder / "botocore" / "data").iterdir():
        if path.is_dir() and path.name not in _SERVICE_MODELS:
            shutil.rmtree(path)


def _copy(root: Path, files: list[Path], destination: Path) -> None:
    for path in files:
        place = destination / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def _compile(target: _Target, folder: Path) -> None:
    """Bytecode beside the sources: it halves the CPU of a cold import (0.4 s for 0.85 s), and Lambda cannot keep any.

    Unchecked, because no source changes in a bundle and the zip's times say nothing.
    """
    if target.compiler is None:
        return
    command = [
        *(target.compiler, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"),
        *("-s", str(folder), "-p", _TASK_ROOT, str(folder)),
    ]
    # Sets of constants are marshalled in the order of their hashes.
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "0"})


def _zip(folders: list[Path], archive: Path, content: str) -> None:
    files = {str(path.relative_to(folder)): path for folder in folders for path in folder.rglob("*") if path.is_file()}
    write_zip(files, archive, content)
