"""The sources that are counted, and what all counts ask of them: is it product code, its syntax tree, its imports."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

Sources = Mapping[str, str]
"""The text of each file by its path from the repository's root, with `/`."""

PRODUCT = ("muster", "lambdas", "infra")
LINKED = ("infra/", "lambdas/")
"""Folders at the root that the package `muster` links to: `infra/stack.py` is imported as `muster.infra.stack`."""
ENTRY_POINTS = ("__init__.py", "__main__.py")
_TEXT = {".py", ".md", ".js", ".html", ".css", ".json", ".yaml", ".toml", ".svg", ""}


@dataclass(frozen=True)
class Finding:
    """One place that a metric counts. `size` is what a metric of extremes compares; `line` counts from 1."""

    path: str
    line: int
    text: str
    size: int = 1


def read_sources(root: Path = Path()) -> dict[str, str]:
    """The text files below `root` that git tracks or would track, as they are now; raises where git is missing."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    paths = (path for path in sorted(set(listed.split("\0"))) if path and PurePosixPath(path).suffix in _TEXT)
    return {path: (root / path).read_text(encoding="utf-8") for path in paths if (root / path).is_file()}


def product_modules(sources: Sources) -> Iterator[tuple[str, str]]:
    """Path and text of the Python files of muster, lambdas and infra."""
    return ((path, text) for path, text in python_files(sources) if path.split("/")[0] in PRODUCT)


def python_files(sources: Sources) -> Iterator[tuple[str, str]]:
    """Path and text of every Python file."""
    return ((path, text) for path, text in sources.items() if path.endswith(".py"))


def base_name(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def module_name(path: str) -> str:
    """`muster/control/store.py` is `muster.control.store`; a package's `__init__.py` has the package's name."""
    path = f"muster/{path}" if path.startswith(LINKED) else path
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def parse(text: str) -> ast.Module:
    """The syntax tree of a Python file: every metric asks for it."""
    return ast.parse(text)


def imported_modules(text: str, modules: frozenset[str]) -> set[str]:
    """Which of `modules` a file imports, anywhere in it: `from package import module` is an import of the module.

    Imports are absolute here; a name in a string (a lazy export, an entry point) does not count.
    """
    found: set[str] = set()
    for node in ast.walk(parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found.update(full if full in modules else node.module for full in names)
    return found & modules
