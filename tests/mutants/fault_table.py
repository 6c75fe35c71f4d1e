"""The table of faults in docs/failures.md: its rows, and the tests that they name."""

import re

from tests.support.source_patch import ROOT

NO_CODE = "(no code of its own)"
"""What a row says whose fault only the rules of other rows handle: there is nothing that a mutant could take out."""
_HEADING = "## Every fault, and the test that shows it"
_TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")


def fault_rows() -> list[str]:
    """The rows, as they stand in the page."""
    page = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    section = page.split(_HEADING, 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [line for line in lines if not line.startswith(("|---", "| fault"))]


def named_tests(row: str) -> list[str]:
    """The tests that a row names, each as `file::function`."""
    return _TEST.findall(row)
