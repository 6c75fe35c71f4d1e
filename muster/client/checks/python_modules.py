"""Finds Python modules in a folder as the interpreter of a container would, without importing any."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_CUTOFF = 0.75


@dataclass(frozen=True)
class Missing:
    """A module that is not there. `part` is the first part of its name without a file, `folder` where it would be."""

    part: str
    folder: Path
    parents: tuple[str, ...]
    elsewhere: bool
    """Whether it may be in the image or in an installed package: no package of the folder claims its name."""

    def nearest(self) -> str | None:
        """The full name of the module that is most like it."""
        near = difflib.get_close_matches(self.part, list(modules_in(self.folder)), n=1, cutoff=_CUTOFF)
        return ".".join([*self.parents, near[0]]) if near else None


def locate(root: Path, module: str) -> Path | Missing | None:
    """The file of the module `a.b.c` if `root` is on the path.

    None: the source cannot say what it is, for it is compiled, a folder alone, or found by the program itself.
    """
    parts = module.split(".")
    place, path, elsewhere = root, None, True
    for index, part in enumerate(parts):
        names = _names(place)
        package = place / part
        if part in names and _is_file(package / "__init__.py") and "__init__.py" in _names(package):
            place, path, elsewhere = package, package / "__init__.py", False
            if index < len(parts) - 1 and _may_set_path(path):
                return None
        elif any(name.startswith(f"{part}.") and name.endswith((".so", ".pyd", ".pyc")) for name in names):
            return None
        elif f"{part}.py" in names and _is_file(place / f"{part}.py"):
            if index < len(parts) - 1:
                return None  # a module that may make itself a package
            path = place / f"{part}.py"
        elif part in names and package.is_dir():
            place, path = package, None
        else:
            return Missing(part, place, tuple(parts[:index]), elsewhere)
    return path


def is_installed(top: str) -> bool:
    """Whether the Python of this command has a module of this name."""
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def modules_in(folder: Path) -> Iterator[str]:
    """The names of the modules and packages of a folder."""
    for name in sorted(_names(folder)):
        stem = name.removesuffix(".py")
        if not stem.isidentifier() or stem == "__init__":
            continue
        if name.endswith(".py") or any(item.endswith(".py") for item in _names(folder / name)):
            yield stem


def _may_set_path(package: Path) -> bool:
    try:
        return "__path__" in package.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True


def _is_file(path: Path) -> bool:
    """Whether it can be read as one: a pipe, for instance, would be waited for."""
    try:
        return path.is_file()
    except OSError:
        return False


def _names(folder: Path) -> frozenset[str]:
    # Listed, because a file system may ignore case, and a container's does not.
    try:
        return frozenset(path.name for path in folder.iterdir())
    except OSError:
        return frozenset()
