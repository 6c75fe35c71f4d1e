"""How long the tests of mutants take without any mutant."""

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from tests.mutants.forked import PASSED, SECONDS_MAX, run_tests
from tests.support.source_patch import copied_tree


class UnchangedTestsFailError(Exception):
    """The tests fail without any mutant."""


def seconds_of(tests: Sequence[str]) -> dict[str, float]:
    """Run the tests in a copy of the tree; the seconds of each, of all its parameters together.

    Raises:
        UnchangedTestsFailError: one fails; the text is what pytest printed.
    """
    with copied_tree() as copy, tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        code, output = run_tests(copy, tests, seconds_max=None, report=report)
        if code != PASSED:
            raise UnchangedTestsFailError(output)
        seconds: dict[str, float] = defaultdict(float)
        for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it
            name = case.attrib["name"].partition("[")[0]
            seconds[f"{case.attrib['classname'].replace('.', '/')}.py::{name}"] += float(case.attrib["time"])
        return seconds


def seconds_max(seconds: float) -> float:
    """How long a test may take with a mutant: several times as long as without, on a machine that others use, too."""
    return min(SECONDS_MAX, 30 + 4 * seconds)
