"""The CPU time of commands that users and scripts call often: the whole process, user and system together.

Every command runs in a process of its own against an embedded cloud, so Python's start, the imports, the clients and
the calls are all in it. The command is that of an environment with the wheel, as a user has it: a clone's editable
install adds an import hook to every start of Python. What other processes do at the same time makes it longer, never
shorter: the least of several repetitions is the command's own.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unittest.mock import patch

from bench.client import waiting_stack
from bench.looks import WrittenRun
from bench.table import Row
from bench.usage import used
from muster.infra.release.artifacts import build_wheel, install_wheel, make_environment
from muster.local import LocalCloud, Settings
from tests.support.source_patch import ROOT, copied_tree

_REPETITIONS = 9
_AIM = "<= 0.4"
_REPLICAS = 4
_SPEC = ROOT / "examples" / "digits" / "run.yaml"


def run() -> list[Row]:
    """Status, list and plan, as text."""
    with tempfile.TemporaryDirectory() as folder:
        python = _installed(Path(folder, "installed"))
        cloud = LocalCloud.start(Path(folder, "cloud"), Settings(port=0, end_with_parent=True, phase_seconds=3_600))
        with cloud, patch.dict(os.environ, cloud.environment(), clear=True):
            stack = waiting_stack(cloud)
            named = WrittenRun(cloud, stack, "measured", _REPLICAS).name
            shown = (
                ["status", named, "--stack", stack],
                ["list", "--stack", stack],
                ["plan", str(_SPEC)],
            )
            return [_row(python, arguments) for arguments in shown]


def _installed(folder: Path) -> Path:
    """The interpreter of an environment with the wheel and its pinned packages."""
    with copied_tree() as tree:
        wheel = build_wheel(tree, folder)
    python = make_environment(folder / "environment")
    install_wheel(python, wheel, options=["--constraint", str(ROOT / "requirements.txt")])
    return python


def _row(python: Path, arguments: Sequence[str]) -> Row:
    muster, boto3 = [str(python.with_name("muster")), *arguments], [str(python), "-c", "import boto3"]
    pairs = [(_cpu_seconds(muster), _cpu_seconds(boto3)) for _ in range(_REPETITIONS)]
    ours, peer = (min(column) for column in zip(*pairs, strict=True))
    note = f"user and system, least of {_REPETITIONS} processes; the peer is `import boto3`, in turn with them"
    return Row(f"muster {arguments[0]}: CPU", ours, "s", _AIM, peer, note)


def _cpu_seconds(command: Sequence[str]) -> float:
    # As at a user's: what was imported once has its bytecode.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run_it = partial(subprocess.run, env=kept, stdout=subprocess.DEVNULL, check=True, timeout=60)
    return used(lambda: run_it(command), of=resource.RUSAGE_CHILDREN).cpu
