"""The first program of a container that runs a stock image: installs the user's source and the replica.

It runs from the package's zip file, in the image's Python, before anything is installed: it uses the standard library
alone. The image's packages are not changed: missing ones are installed into a virtual environment that also sees the
image's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import site
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from muster.contract.exits import ReplicaExit, failure_text, with_exit_word
from muster.contract.training.source_delivery import (
    ARCHIVE_SUFFIX,
    DEFAULT_BASE_DIR,
    ENV_BASE_DIR,
    REQUIREMENTS,
    SOURCE_CHANNEL,
)
from muster.replica.entry.resolved_secrets import SecretError, resolve_secrets
from muster.replica.entry.toolkit_variables import toolkit_variables
from muster.replica.entry.unpack import ArchiveError, unpack

_REPLICA = ("-P", "-m", "muster.replica")


class DeliveryError(Exception):
    """The delivered source cannot be run."""


def main(package: str, arguments: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    """Replace this process by the program in `arguments`, or the replica; `package` is the zip file that runs this."""
    base = Path(variables.get(ENV_BASE_DIR) or DEFAULT_BASE_DIR)
    try:
        _check(Path(package))
        resolved = {**variables}
        resolve_secrets(resolved)
        _become(base, Path(package), arguments, resolved)
    except (DeliveryError, SecretError, OSError) as error:
        code = error.code if isinstance(error, SecretError) else ReplicaExit.BAD_INPUT
        print(f"muster: {error}", file=sys.stderr)
        failure = base / "output" / "failure"
        failure.parent.mkdir(parents=True, exist_ok=True)
        failure.write_text(failure_text(with_exit_word(code, str(error))))
        sys.exit(code)


def install(package: Path, place: Path) -> None:
    """Make a Python below `place` that has the image's packages and what the replica requires, and print its path.

    What goes wrong is the last line that is printed.
    """
    try:
        _check(package)
        shutil.rmtree(place, ignore_errors=True)
        python = _overlay(place / "python")
        _install(python, [_own_requirements(place, package)], place)
    except (DeliveryError, OSError) as error:
        print(f"muster: {error}", file=sys.stderr)
        sys.exit(ReplicaExit.BAD_INPUT)
    print(python)


def _check(package: Path) -> None:
    """The plan names the package by its SHA-256: a damaged one must not train."""
    found = hashlib.sha256(package.read_bytes()).hexdigest()
    if package.stem != found:
        message = f"Muster's replica package {package.name} is damaged: its SHA-256 is {found}."
        raise DeliveryError(message)


def _become(base: Path, package: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> NoReturn:
    place = base / "muster"
    # A restarted container finds the folder of the process before it.
    shutil.rmtree(place, ignore_errors=True)
    source = place / "source"
    _unpack(base / "input" / "data" / SOURCE_CHANNEL, source)
    python = _overlay(place / "python")
    _install(python, _requirements(place, package, source), source)
    # A program that starts the image's own Python, as torchrun does, finds what was installed as well.
    importable = [package, source, _packages(place / "python")]
    environment = _environment(python, importable, {**toolkit_variables(base), **variables})
    command = list(arguments) or [str(python), *_REPLICA]
    os.chdir(source)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the user's own program
    except OSError as error:
        message = f"The entrypoint {command[0]!r} cannot be started: {error.strerror}."
        raise DeliveryError(message) from None


def _unpack(channel: Path, source: Path) -> None:
    archives = sorted(channel.glob(f"*{ARCHIVE_SUFFIX}"))
    if len(archives) != 1:
        message = f"source_dir has {len(archives)} archives ({ARCHIVE_SUFFIX}); allowed: exactly one."
        raise DeliveryError(message)
    try:
        unpack(archives[0], source)
    except ArchiveError as error:
        message = f"The source {archives[0].name} cannot be unpacked: {error}."
        raise DeliveryError(message) from None


def _overlay(place: Path) -> Path:
    """A virtual environment that also sees all packages of this Python; returns its interpreter."""
    venv.EnvBuilder(symlinks=True).create(place)
    lines = [f"import site; site.addsitedir({folder!r})" for folder in site.getsitepackages()]
    (_packages(place) / "image.pth").write_text("\n".join(lines) + "\n")
    return place / "bin" / "python"


def _packages(place: Path) -> Path:
    """Where the environment at `place` has its packages."""
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(place), "platbase": str(place)}))


def _requirements(place: Path, package: Path, source: Path) -> list[Path]:
    """Muster's requirements, and the user's if there are any."""
    own, users = _own_requirements(place, package), source / REQUIREMENTS
    return [own, users] if users.is_file() else [own]


def _own_requirements(place: Path, package: Path) -> Path:
    own = place / REQUIREMENTS
    with zipfile.ZipFile(package) as archive:
        own.write_bytes(archive.read(REQUIREMENTS))
    return own


def _install(python: Path, requirements: Sequence[Path], source: Path) -> None:
    """Install missing packages. Paths in the user's file are relative to the source."""
    files = [part for path in requirements for part in ("-r", str(path))]
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", *files]
    outcome = subprocess.run(command, cwd=source, stderr=subprocess.PIPE, text=True, check=False)
    sys.stderr.write(outcome.stderr)
    if outcome.returncode == 0:
        return
    said = [line.strip() for line in outcome.stderr.splitlines() if line.strip()]
    errors = [line for line in said if line.startswith("ERROR: ")] or said[-1:] or ["pip printed no error"]
    whose = f"The source's {REQUIREMENTS}" if len(requirements) > 1 else "The requirements of Muster's replica"
    message = f"{whose} cannot be installed: {errors[-1].replace('ERROR: ', '', 1)}"
    raise DeliveryError(message)


def _environment(python: Path, importable: Sequence[Path], variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of the program: `python` is the overlay's, and the source can be imported."""
    paths = [*map(str, importable), *filter(None, [variables.get("PYTHONPATH")])]
    return {
        **variables,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONFAULTHANDLER": variables.get("PYTHONFAULTHANDLER", "1"),  # a crash in C says where in Python it was
        "PATH": os.pathsep.join([str(python.parent), variables.get("PATH", os.defpath)]),
        "VIRTUAL_ENV": str(python.parent.parent),
    }
