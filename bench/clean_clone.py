"""The wait of a newcomer: `make demo` in a clean clone while the caches of the package clients are empty, and again.

It needs the network, and as many free cores as the machine has: everything else that runs makes it longer.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from bench.table import Row

_ROOT = Path(__file__).parents[1]
_TIMEOUT_SECONDS = 1_200.0
# Of this shell's settings none may reach the clone: neither its virtual environment nor the options of its make.
_FOREIGN = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "FAULTS")


def run() -> list[Row]:
    """The commit of this clone, not its working tree."""
    with tempfile.TemporaryDirectory() as folder:
        clone, caches = Path(folder, "clone"), Path(folder, "caches")
        subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(clone)], check=True, timeout=120)
        kept = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
        environment = {
            **kept,
            "UV_CACHE_DIR": str(caches / "uv"),
            "PIP_CACHE_DIR": str(caches / "pip"),
            "NPM_CONFIG_CACHE": str(caches / "npm"),
            "XDG_CACHE_HOME": str(caches / "other"),
        }
        setup, cold, warm = (_seconds(target, clone, environment) for target in ("setup", "demo", "demo"))
        size = sum(path.stat().st_size for path in Path(clone, ".venv").rglob("*") if path.is_file())
    note = f"{os.cpu_count()} cores"
    return [
        Row("make setup in a clean clone, empty package caches", setup, "s", "<= 45", note=note),
        Row("make demo after it", cold, "s", "<= 20", note=f"{note}; the stack's first start on this machine"),
        Row("make demo again", warm, "s", "<= 20", note=note),
        Row("packages that it installs for Python", size / 1e6, "MB"),
    ]


def _seconds(target: str, clone: Path, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    command = ["make", "--silent", target]
    subprocess.run(command, cwd=clone, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=_TIMEOUT_SECONDS)
    return time.perf_counter() - started
