"""The two code archives of a deployment, made without Docker.

The functions' bundle holds our packages, their pinned dependencies and the replica package. That is Muster's replica,
which Python runs as it is: for specs that bring their source instead of an image. It travels in the bundle, so that the
function plan always has the package of its own version. An archive depends on its inputs alone
(sources, requirements, platform, compiler): the same inputs give the same bytes, so the CDK sees a change only where
there is one. Dependencies are installed once per platform and requirements file.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from muster.contract.run.source_delivery import PACKAGE_FILE
from muster.infra.deploy.function_dependencies import (
    INSTALLATION_NOTES,
    SERVICE_MODELS,
    compile_sources,
    install,
    target_of,
)
from muster.infra.settings.stack_settings import Platform

_SOURCES = ("muster/__init__.py", "muster/contract", "muster/control", "muster/report", "lambdas")
_ASSETS = "muster/report/assets"  # the parts of the page
_REQUIREMENTS = "lambdas/requirements.txt"
_REPLICA_SOURCES = (
    "muster/__init__.py",
    "muster/torch.py",
    "muster/torchft.py",
    "muster/contract",
    "muster/replica",
)
_REPLICA_MAIN = "muster/replica/entry/package_main.py"
_REPLICA_REQUIREMENTS = "muster/replica/requirements.txt"
_OLDEST_TIME = (1980, 1, 1, 0, 0, 0)  # zip: the earliest


def build_bundle(root: Path, platform: Platform) -> Path:
    """The path of the functions' bundle for `platform`, built under `root`/build/bundle if the inputs have changed.

    Raises:
        BundleError: uv could not install the dependencies.
    """
    target = target_of(platform)
    folder = _folder(root)
    requirements = root / _REQUIREMENTS
    pruning = ",".join([*sorted(SERVICE_MODELS), *INSTALLATION_NOTES]).encode()
    dependencies = folder / f"{target.key}-{_digest([requirements.read_bytes(), pruning])}"
    if not dependencies.is_dir():
        install(requirements, target, dependencies)
    sources = [*_modules(root, _SOURCES), *sorted((root / _ASSETS).iterdir())]
    parts = (part for path in sources for part in (str(path.relative_to(root)).encode(), path.read_bytes()))
    package = build_replica_package(root)
    content = f"{dependencies.name} {_digest([*parts, package.read_bytes()])}"
    archive = folder / f"{target.key}.zip"
    if _content(archive) != content:
        with tempfile.TemporaryDirectory(dir=folder) as staging:
            _copy(root, sources, Path(staging) / "code")
            compile_sources(target, Path(staging) / "code")
            shutil.copyfile(package, Path(staging) / "code" / PACKAGE_FILE)
            _zip([dependencies, Path(staging) / "code"], archive, content)
    return archive


def build_replica_package(root: Path) -> Path:
    """The path of the replica package, written to `root`/build/bundle."""
    archive = _folder(root) / PACKAGE_FILE
    files = {str(path.relative_to(root)): path for path in _modules(root, _REPLICA_SOURCES)}
    _write_zip(
        {**files, "__main__.py": root / _REPLICA_MAIN, "requirements.txt": root / _REPLICA_REQUIREMENTS}, archive
    )
    return archive


def _folder(root: Path) -> Path:
    folder = root / "build" / "bundle"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _modules(root: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """The Python files of packages, and single files."""
    for name in names:
        path = root / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def _content(archive: Path) -> str | None:
    """What the archive was made from, as its comment says."""
    if not archive.exists():
        return None
    with zipfile.ZipFile(archive) as file:
        return file.comment.decode()


def _digest(parts: Iterator[bytes] | list[bytes]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "big"))
        state.update(part)
    return state.hexdigest()[:16]


def _copy(root: Path, files: list[Path], destination: Path) -> None:
    for path in files:
        place = destination / path.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)


def _zip(folders: list[Path], archive: Path, content: str) -> None:
    files = {str(path.relative_to(folder)): path for folder in folders for path in folder.rglob("*") if path.is_file()}
    _write_zip(files, archive, content)


def _write_zip(files: Mapping[str, Path], archive: Path, comment: str = "") -> None:
    """Write `files` by the order of their names, with one time and one mode, and put the archive in place whole."""
    partial = archive.with_name(f"{archive.name}.{os.getpid()}")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as output:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _OLDEST_TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            output.writestr(entry, files[name].read_bytes())
        output.comment = comment.encode()
    partial.replace(archive)
