"""The CPU time of commands that users and scripts call often: the whole process, user and system together.

Every command runs in a process of its own against an embedded cloud, so Python's start, the imports, the clients and
the calls are all in it. What other processes do at the same time makes it longer, never shorter: the least of several
repetitions is the command's own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

from bench.client import waiting_stack
from bench.looks import WrittenRun
from bench.table import Row
from muster.local import LocalCloud, Settings

_REPETITIONS = 9
_AIM = "<= 0.5"
_REPLICAS = 4
_SPEC = Path(__file__).parents[1] / "examples" / "digits" / "run.yaml"


def run() -> list[Row]:
    """Status, list and plan, as text."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, end_with_parent=True, phase_seconds=3_600)
        with LocalCloud.start(Path(folder), settings) as cloud, patch.dict(os.environ, cloud.environment(), clear=True):
            stack = waiting_stack(cloud)
            named = WrittenRun(cloud, stack, "measured", _REPLICAS).name
            shown = (
                ["status", named, "--stack", stack],
                ["list", "--stack", stack],
                ["plan", str(_SPEC)],
            )
            return [_row(arguments) for arguments in shown]


def _row(arguments: Iterable[str]) -> Row:
    command, *rest = arguments
    seconds = min(_cpu_seconds([command, *rest]) for _ in range(_REPETITIONS))
    return Row(f"muster {command}: CPU", seconds, "s", _AIM, note=f"user and system, least of {_REPETITIONS} processes")


def _cpu_seconds(arguments: Iterable[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "muster.client.cli.program", *arguments]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
