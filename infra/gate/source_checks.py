"""Bandit and vulture, which read the code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from muster.infra.gate.finding import Finding
from muster.infra.gate.tools import own_program, run, run_for_json

SOURCES = ("muster", "infra", "lambdas", "app.py", "examples", "bench", "docs")
"""What is checked. Not the tests: what only a test uses is unused."""

_VULTURE_LINE = re.compile(r"^(.+?):(\d+): (\w+ \w+) (.*?) ?\((\d+)% confidence.*\)$", re.MULTILINE)
_FOUND_UNUSED = 3  # vulture's exit code


def scan_security(root: Path, sources: Sequence[str] = SOURCES) -> list[Finding]:
    """What bandit finds in `sources` below `root`.

    Raises:
        GateError: bandit could not run.
    """
    command = [own_program("bandit"), "--quiet", "--recursive", "--format", "json", *sources]
    report = run_for_json(command, expected=(0, 1), folder=root)
    return [
        *(Finding("bandit", "unreadable", error["filename"], error["reason"]) for error in report["errors"]),
        *(
            Finding("bandit", item["test_id"], item["filename"].removeprefix("./"), _said(item))
            for item in report["results"]
        ),
    ]


def find_unused(root: Path, sources: Sequence[str] = SOURCES) -> list[Finding]:
    """The code in `sources` below `root` that vulture takes for unused.

    Raises:
        GateError: vulture could not run.
    """
    # 60 % is its confidence in anything but imports, arguments and what cannot be reached.
    command = [own_program("vulture"), "--min-confidence", "60", *sources]
    output = run(command, expected=(0, _FOUND_UNUSED), folder=root).stdout
    return [
        Finding("vulture", kind, f"{file}:{name.strip(chr(39))}", f"line {line}, {confidence} % sure")
        for file, line, kind, name, confidence in _VULTURE_LINE.findall(output)
    ]


def _said(item: dict[str, object]) -> str:
    return f"line {item['line_number']}: {item['issue_text']}"
