"""Vulture, which reads the code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from muster.infra.gate.finding import Finding
from muster.infra.gate.tools import run, venv_program

SOURCES = ("muster", "infra", "lambdas", "app.py", "examples", "bench", "docs")
"""What is checked. Not the tests: what only a test uses is unused."""

_VULTURE_LINE = re.compile(r"^(.+?):(\d+): (\w+ \w+) (.*?) ?\((\d+)% confidence.*\)$", re.MULTILINE)
_FOUND_UNUSED = 3  # vulture's exit code


def find_unused(root: Path, sources: Sequence[str] = SOURCES) -> list[Finding]:
    """The code in `sources` below `root` that vulture takes for unused.

    Raises:
        GateError: vulture could not run.
    """
    # 60 % is its confidence in anything but imports, arguments and what cannot be reached.
    command = [venv_program("vulture"), "--min-confidence", "60", *sources]
    output = run(command, expected=(0, _FOUND_UNUSED), folder=root).stdout
    return [
        Finding("vulture", kind, f"{file}:{name.strip(chr(39))}", f"line {line}, {confidence} % sure")
        for file, line, kind, name, confidence in _VULTURE_LINE.findall(output)
    ]
