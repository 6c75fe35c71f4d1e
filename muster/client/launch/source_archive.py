"""Packing a folder of source code. Reproducible: the same files give the same archive on every machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from muster.client.client_errors import os_reason
from muster.client.launch.ignore import IGNORE_FILE, Ignored
from muster.contract.errors import Problem, SpecError
from muster.contract.training.source_delivery import (
    REQUIREMENTS,
    SOURCE_BYTES_MAX,
    SOURCE_DEPTH_MAX,
    SOURCE_FILES_MAX,
    source_key,
)

LOCK = "uv.lock"
_PROJECT = "pyproject.toml"
# Without the project itself, whose source is delivered, and without what only its developers need.
_EXPORT = ("export", "--frozen", "--no-dev", "--no-emit-project", "--no-hashes", "--no-header", "--no-annotate")
_LEVEL = 6
_HEAD_BYTES = 500
PAGE_MARK = '<meta name="generator" content="Muster">'
"""In the head of every page."""


@dataclass(frozen=True)
class PackedSource:
    """An archive of source code, named by the digest of its tar stream, because compressors differ."""

    files: int
    tar: bytes

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the tar stream, in hexadecimal digits."""
        return hashlib.sha256(self.tar).hexdigest()

    @property
    def key(self) -> str:
        """The archive's key in the stack's bucket."""
        return source_key(self.digest)

    def compressed(self) -> bytes:
        """The archive as it is stored."""
        return gzip.compress(self.tar, _LEVEL, mtime=0)


def pack(folder: Path) -> PackedSource:
    """Pack the files below `folder`, sorted, without owners and times; of a project with uv.lock, what that pins.

    Raises:
        SpecError: it is not a folder, is empty or too large, holds something else than files, or uv refuses its lock.
    """
    problem = folder_problem(folder)
    if problem is not None:
        raise SpecError([problem])
    files = list(source_files(folder))
    _check_size(folder, files)
    locked = None if REQUIREMENTS in files else _locked_requirements(folder)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for relative in files:
            path = folder / relative
            body = _content(path, relative)
            member = tarfile.TarInfo(relative)
            member.size = len(body)
            member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            tar.addfile(member, io.BytesIO(body))
        if locked is not None:
            member = tarfile.TarInfo(REQUIREMENTS)
            member.size = len(locked)
            tar.addfile(member, io.BytesIO(locked))
    return PackedSource(len(files), packed.getvalue())


def _locked_requirements(folder: Path) -> bytes | None:
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


def _content(path: Path, relative: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _unreadable(relative, error) from error


def _unreadable(relative: str, error: OSError) -> SpecError:
    remedy = f"make it readable, or exclude it in {IGNORE_FILE}"
    return _refused(remedy, f"{relative}, which cannot be read ({os_reason(error)})")


def folder_problem(folder: Path) -> Problem | None:
    """The problem of a `source_dir` that is no folder."""
    if folder.is_dir():
        return None
    found = "a file" if folder.exists() else "nothing"
    return Problem("source_dir", f"{found} at {folder}", "name a folder, relative to the spec's file")


def source_files(folder: Path) -> Iterator[str]:
    """The paths of all files to be packed, relative to `folder`, sorted."""
    ignored = Ignored.of(folder)
    root = folder.resolve()
    found: list[str] = []

    def refuse(error: OSError) -> NoReturn:
        raise _unreadable(Path(error.filename).relative_to(folder).as_posix(), error) from error

    for place, folders, names in os.walk(folder, onerror=refuse):
        here = Path(place).relative_to(folder)
        folders[:] = [name for name in folders if not ignored.covers((here / name).as_posix(), folder=True)]
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in (*names, *links):
            relative = (here / name).as_posix()
            path = Path(place, name)
            if ignored.covers(relative) or _is_page(path):
                continue
            if not path.is_file() or not path.resolve().is_relative_to(root):
                remedy = f"remove it, copy its target into the folder, or exclude it in {IGNORE_FILE}"
                raise _refused(remedy, f"{relative}, which is a link to something outside this folder, or not a file")
            found.append(relative)
    yield from sorted(found)


def _is_page(path: Path) -> bool:
    """Whether `muster report` has written the file."""
    if path.suffix != ".html" or not path.is_file():
        return False
    with path.open("rb") as file:
        return PAGE_MARK.encode() in file.read(_HEAD_BYTES)


def _check_size(folder: Path, files: list[str]) -> None:
    if not files:
        remedy = "name a folder with code"
        raise _refused(remedy, f"no file in {folder}, not counting those that {IGNORE_FILE} excludes")
    remedy = (
        f"exclude everything that is not code in {IGNORE_FILE}, and pass data through input_data_config; or write "
        "source_dir: null if the image contains the code"
    )
    if len(files) > SOURCE_FILES_MAX:
        raise _refused(remedy, f"{len(files):,} files", f"at most {SOURCE_FILES_MAX:,}")
    deepest = max(files, key=lambda relative: relative.count("/"))
    if deepest.count("/") >= SOURCE_DEPTH_MAX:
        found = f"{deepest[:80]}…, a path of {deepest.count('/') + 1:,} parts"
        raise _refused(remedy, found, f"at most {SOURCE_DEPTH_MAX}")
    sizes = {relative: (folder / relative).stat().st_size for relative in files}
    total = sum(sizes.values())
    if total > SOURCE_BYTES_MAX:
        largest = max(sizes, key=lambda relative: sizes[relative])
        found = f"{total:,} bytes ({largest} alone has {sizes[largest]:,})"
        raise _refused(remedy, found, f"at most {SOURCE_BYTES_MAX:,} bytes")


def _refused(remedy: str, found: str, allowed: str = "") -> SpecError:
    return SpecError([Problem("source_dir", found, remedy, allowed)])
