"""The table of faults in docs/failures.md names tests that exist."""

from __future__ import annotations

import ast
import re

from tests.support.source_patch import ROOT

HEADING = "## Every fault, and the test that shows it"
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


def rows() -> list[str]:
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    section = page.split(HEADING, 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [line for line in lines if not line.startswith(("|---", "| fault"))]


def test_every_fault_names_a_test_that_exists() -> None:
    for row in rows():
        named = _TEST.findall(row)
        assert named, f"no test in: {row}"
        for file, function in named:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, row
