"""How long a change is judged: the tests, the unit tests alone and the checks, in a clone that is set up.

It needs a quiet machine with two free cores. Not run with the other benchmarks: it takes a quarter of an hour.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from bench.table import Row
from bench.usage import Usage, used

ON_REQUEST = True
_ROOT = Path(__file__).parents[1]
_TIMEOUT_SECONDS = 3_600.0
_CACHES = (".mypy_cache", ".ruff_cache", ".import_linter_cache")
# Of this shell's settings none may reach the targets.
_FOREIGN = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")


def run() -> list[Row]:
    """This clone with its uncommitted changes.

    Raises:
        subprocess.CalledProcessError: something fails, so its time says nothing.
    """
    _make("setup")
    collected, items = _collected()
    unit = _made("unit")
    for name in _CACHES:
        shutil.rmtree(_ROOT / name, ignore_errors=True)
    checked, again = _made("check"), _made("check")
    tested = _made("test")
    peaks = {
        name: json.loads((_ROOT / "build" / "test" / f"{name}.peaks").read_text(encoding="utf-8"))
        for name in ("main", "torch")
    }
    lines = sum(len(path.read_bytes().splitlines()) for path in (_ROOT / "tests").rglob("*.py"))
    note = f"{os.cpu_count()} cores"
    return [
        Row("make test", tested.wall, "s", "<= 600", note=note),
        Row("make test, CPU", tested.cpu, "s", "<= 1150", note=note),
        Row("make unit", unit.wall, "s", "<= 90", note=note),
        Row("make check without caches", checked.wall, "s", "<= 120", note=note),
        Row("make check again", again.wall, "s", "<= 60", note=note),
        Row("collection in one process", collected.wall, "s", "<= 10", note=note),
        Row("peak memory of a worker without frameworks", max(peaks["main"]) / 1e6, "MB", "<= 500"),
        Row("peak memory of the process with PyTorch", max(peaks["torch"]) / 1e6, "MB"),
        Row("items, with those of the release", items, "items", "<= 5500"),
        Row("lines of Python in tests", lines, "lines", "<= 66000"),
    ]


def _collected() -> tuple[Usage, int]:
    """What collecting the tests of `make test` takes, and how many items there are with PyTorch's and the release's."""

    def items(*arguments: str) -> int:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *arguments]
        outcome = subprocess.run(command, cwd=_ROOT, check=True, capture_output=True, text=True)
        return sum("::" in line for line in outcome.stdout.splitlines())

    usage = used(items, of=resource.RUSAGE_CHILDREN)
    return usage, items() + items("tests/torch", "tests/release")


def _made(target: str) -> Usage:
    return used(lambda: _make(target), of=resource.RUSAGE_CHILDREN)


def _make(target: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    command = ["make", "--silent", target]
    subprocess.run(command, cwd=_ROOT, env=environment, stdout=sys.stderr, check=True, timeout=_TIMEOUT_SECONDS)
