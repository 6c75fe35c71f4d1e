"""The list of faults in docs/faults.md: its rows, and the tests that they name."""

import re

from tests.support.source_patch import ROOT

NO_CODE = "(no own code)"
"""What a row says whose fault only the rules of other rows handle: there is nothing that a mutant could take out."""
_TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")


def fault_rows() -> list[str]:
    """The rows, as they stand in the page."""
    page = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    return [line for line in page.splitlines() if line.startswith("- ")]


def named_tests(row: str) -> list[str]:
    """The tests that a row names, each as `file::function`."""
    return _TEST.findall(row)
