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
from functools import partial
from pathlib import Path
from unittest.mock import patch

from bench.client import waiting_stack
from bench.looks import WrittenRun
from bench.table import Row
from bench.usage import used
from muster.local import LocalCloud, Settings

_REPETITIONS = 9
_AIM = "<= 0.4"
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
    pairs = [
        (_cpu_seconds(["-m", "muster.client.cli.program", command, *rest]), _cpu_seconds(["-c", "import boto3"]))
        for _ in range(_REPETITIONS)
    ]
    ours, peer = (min(column) for column in zip(*pairs, strict=True))
    note = f"user and system, least of {_REPETITIONS} processes; the peer is `import boto3`, in turn with them"
    return Row(f"muster {command}: CPU", ours, "s", _AIM, peer, note)


def _cpu_seconds(arguments: Iterable[str]) -> float:
    # As at a user's: what was imported once has its bytecode.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run_it = partial(subprocess.run, env=kept, stdout=subprocess.DEVNULL, check=True, timeout=60)
    return used(lambda: run_it([sys.executable, *arguments]), of=resource.RUSAGE_CHILDREN).cpu
