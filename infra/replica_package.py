"""Muster's replica as one zip file that Python runs as it is: for specs that bring their source instead of an image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from infra.zip_file import write_zip

_SOURCES = ("muster/__init__.py", "muster/contract", "muster/replica")
_MAIN = "muster/replica/entry/package_main.py"
_REQUIREMENTS = "muster/replica/requirements.txt"


def build_replica_package(root: Path) -> Path:
    """The path of the zip, written to `root`/build/bundle: the same sources give the same bytes."""
    folder = root / "build" / "bundle"
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "replica.zip"
    write_zip(dict(_files(root)), archive)
    return archive


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    for name in _SOURCES:
        path = root / name
        for source in path.rglob("*.py") if path.is_dir() else [path]:
            yield str(source.relative_to(root)), source
    yield "__main__.py", root / _MAIN
    yield "requirements.txt", root / _REQUIREMENTS
