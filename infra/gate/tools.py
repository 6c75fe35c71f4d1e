"""How the checkers are started: the programs, and their output as JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from muster.infra.gate.finding import GateError
from muster.infra.places import PACKAGE

ROOT = PACKAGE.parent
"""The clone: the gate is part of no installation."""

_TAIL = 2_000  # characters of a checker's error that are shown


def venv_program(name: str) -> str:
    """The path of a checker beside this interpreter.

    Raises:
        GateError: it is not installed.
    """
    return _installed(Path(sys.executable).with_name(name))


def node_program(name: str) -> str:
    """The path of a checker of node_modules.

    Raises:
        GateError: it is not installed.
    """
    return _installed(ROOT / "node_modules" / ".bin" / name)


def run(command: Sequence[str], *, expected: Collection[int], folder: Path = ROOT) -> CompletedProcess[str]:
    """A checker that ended with one of the exit codes `expected`.

    Raises:
        GateError: it ended with another one.
    """
    outcome = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if outcome.returncode not in expected:
        said = (outcome.stderr or outcome.stdout)[-_TAIL:].strip()
        message = f"{Path(command[0]).name} ended with exit code {outcome.returncode}:\n{said}"
        raise GateError(message)
    return outcome


def run_for_json(command: Sequence[str], *, expected: Collection[int], folder: Path = ROOT) -> Any:
    """What a checker printed, which is JSON of a format of its own; as `run`.

    Raises:
        GateError: it ended with another exit code, or printed something else.
    """
    output = run(command, expected=expected, folder=folder).stdout
    try:
        return json.loads(output)
    except ValueError:
        message = f"{Path(command[0]).name} printed no JSON: {output[:_TAIL]!r}"
        raise GateError(message) from None


def _installed(path: Path) -> str:
    if not path.exists():
        message = f"{path.name} is not installed ({path} is missing): run `make check`, which installs it."
        raise GateError(message)
    return str(path)
