"""How much memory pytest and its workers took, written to the file that an environment variable names."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest

from tests.suite.session import PEAKS

_peaks: list[int] = []


def _own() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells its controller; who is none writes the file."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["peak"] = _own()
    elif PEAKS in os.environ:
        Path(os.environ[PEAKS]).write_text(json.dumps(_peaks or [_own()]), encoding="utf-8")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Note what a worker tells; one that crashed tells nothing."""
    if "peak" in getattr(node, "workeroutput", {}):
        _peaks.append(node.workeroutput["peak"])
