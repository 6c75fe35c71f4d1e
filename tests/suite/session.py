"""One session of pytest, and what came of it."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.support.source_patch import ROOT

SLOWEST = 50
"""How many of the slowest tests pytest names."""
PEAKS = "MUSTER_TEST_PEAKS"
"""The variable with the file into which pytest writes how much memory its processes took (tests/plugins/peaks.py)."""


@dataclass
class Report:
    """What a session has shown: items and the seconds that they took by layer, and the memory of its processes."""

    code: int
    """pytest's exit code: 0 if everything passed."""
    seconds: float
    """How long the session lasted."""
    items: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    took: Counter[str] = field(default_factory=Counter)
    """Seconds of a worker."""
    peaks: list[int] = field(default_factory=list)
    """The most memory that each process of pytest held, in bytes."""


@dataclass(frozen=True)
class Session:
    """A call of pytest whose results are written to `folder`: NAME.xml in JUnit's format, NAME.log, NAME.peaks."""

    name: str
    arguments: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to that of this process."""

    @property
    def log(self) -> Path:
        """What pytest printed, unless it went to the terminal."""
        return self.folder / f"{self.name}.log"

    def run(self, *, shown: bool = True) -> Report:
        """Run it; `shown`: on the terminal, otherwise into its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        junit, peaks = self.folder / f"{self.name}.xml", self.folder / f"{self.name}.peaks"
        for old in (junit, peaks):
            old.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", f"--durations={SLOWEST}", f"--junitxml={junit}", *self.arguments]
        environment = {**os.environ, **self.environment, PEAKS: str(peaks)}
        began = time.monotonic()
        if shown:
            code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
        else:
            with self.log.open("wb") as log:
                outcome = subprocess.run(
                    command, cwd=ROOT, env=environment, check=False, stdout=log, stderr=subprocess.STDOUT
                )
            code = outcome.returncode
        report = Report(code, time.monotonic() - began)
        if junit.exists():
            _count(junit, report)
        if peaks.exists():
            report.peaks = json.loads(peaks.read_text())
        return report


def _count(junit: Path, report: Report) -> None:
    for case in ElementTree.parse(junit).iter("testcase"):  # noqa: S314 - pytest wrote it
        layer = layer_of(case.attrib["classname"])
        report.items[layer] += 1
        report.took[layer] += float(case.attrib["time"])
        report.failed[layer] += any(child.tag in {"failure", "error"} for child in case)


def layer_of(module: str) -> str:
    """The folder below `tests`, of a release's tests with the group: `unit`, `release/oracle`."""
    parts = module.split(".")[1:]
    return "/".join(parts[: 2 if parts[:1] == ["release"] else 1])
