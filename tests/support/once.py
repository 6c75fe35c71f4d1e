"""Folders that are slow to make and that all workers of a session share: the first one makes it, the others wait."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` that all workers share, filled by `make`; if a worker fails to fill it, the next one tries.

    Modules may use the same names.
    """
    # A worker's folder lies inside the session's folder.
    own = factory.getbasetemp()
    session = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    own_name = f"{make.__module__}.{name}"
    folder, made = session / own_name, session / f"{own_name}.made"
    with (session / f"{own_name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder.mkdir(exist_ok=True)
            make(folder)
            made.touch()
    return folder
