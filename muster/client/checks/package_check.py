"""Whether the embedded cloud has the packages that the source imports: its jobs run with the Python of `muster`."""

from __future__ import annotations

import ast
import os
import shlex
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from muster.client.checks.checked_program import Program
from muster.client.checks.python_modules import Missing, is_installed, locate
from muster.client.launch.source_archive import LOCK
from muster.contract.training.source_delivery import REQUIREMENTS

_LOCAL_IMAGE = "muster-local/"
_LOOPBACK = ("127.0.0.1", "localhost")
# Packages whose names are not those of their modules.
_PACKAGES = {"sklearn": "scikit-learn", "PIL": "pillow", "yaml": "pyyaml", "cv2": "opencv-python"}
_PACKAGES |= {"torchft": "torchft-nightly"}


def check_packages(program: Program, root: Path) -> list[str]:
    """A remark on modules that the program in the source at `root` imports first, and the jobs' Python lacks.

    What `requirements.txt` or `uv.lock` brings is not known here, so with one nothing is said.
    """
    listed = (root / REQUIREMENTS, root / LOCK)
    start = program.script(root) if program.module is None else locate(root, program.module)
    if not isinstance(start, Path) or not _is_embedded(program.image) or any(map(Path.is_file, listed)):
        return []
    names = (name for path in files_of(root, start) for name in _first_imports(path))
    missing = sorted({top for name in names if _is_missing(root, top := name.partition(".")[0])})
    if not missing:
        return []
    packages = [_PACKAGES.get(name, name) for name in missing]
    statement = (
        f"the embedded cloud runs jobs with the Python of `muster local up`; the one of this command has no module "
        f"{', '.join(missing)}, which the source imports: run `{_installation(packages)}`, or name it in "
        f"{root / REQUIREMENTS}"
    )
    return [statement]


def _is_embedded(image: str | None) -> bool:
    if image is None:
        return urlsplit(os.environ.get("AWS_ENDPOINT_URL", "")).hostname in _LOOPBACK
    return image.startswith(_LOCAL_IMAGE)


def files_of(root: Path, start: Path) -> set[Path]:
    """A file and the files of the source at `root` that are imported with it."""
    read, waiting = set[Path](), [start]
    while waiting:
        path = waiting.pop()
        if path not in read:
            read.add(path)
            found = (locate(root, name) for name in _first_imports(path))
            waiting += [there for there in found if isinstance(there, Path)]
    return read


def _first_imports(path: Path) -> Iterable[str]:
    """The modules that a file imports whatever happens: not in a function, a condition or a try."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return  # reported where the trainer is looked for
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def _is_missing(root: Path, name: str) -> bool:
    """Neither in the source nor here. `muster` is delivered."""
    return name != "muster" and isinstance(locate(root, name), Missing) and not is_installed(name)


def _installation(packages: list[str]) -> str:
    """The command that adds packages to this Python."""
    if (Path(sys.prefix) / "uv-receipt.toml").exists():
        return f"uv tool install 'muster-train[deploy]' {' '.join(f'--with {package}' for package in packages)}"
    return f"{shlex.quote(sys.executable)} -m pip install {' '.join(packages)}"
