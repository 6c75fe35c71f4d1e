"""The quick tour of the documentation, typed into a terminal line by line: it shows what the page promises."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
# What `make setup` makes, in this order, and how it remembers.
MADE = {".venv": [".ready", ".ready-bytecode"], "node_modules": [".ready"], "build": [".ready"]}


class Step(NamedTuple):
    """A command, and the lines that are promised after it; … stands for anything."""

    command: str
    promised: list[str]


def tour() -> list[Step]:
    """The console blocks of the tour itself, up to the next section."""
    _, _, rest = (ROOT / "docs" / "quick-tour.md").read_text(encoding="utf-8").partition("# Quick tour\n")
    section = rest.partition("\n## ")[0]
    steps: list[Step] = []
    for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                steps.append(Step(line[2:], []))
            else:
                steps[-1].promised.append(line)
    return steps


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A folder that looks like the clone after `make setup`, without anything left over from an earlier tour."""
    folder = tmp_path / "muster"
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name not in {*MADE, ".git", ".muster", "cdk.out"}:
            (folder / path.name).symlink_to(path)
    # Folders of its own, marked as ready now: whatever make would do to them, ours stay as they are.
    for made, marks in MADE.items():
        (folder / made).mkdir()
        for path in (ROOT / made).iterdir():
            if not path.name.startswith(".ready"):
                (folder / made / path.name).symlink_to(path)
        for mark in marks:
            (folder / made / mark).touch()
    yield folder
    # An interrupted tour leaves its embedded cloud running.
    if (folder / ".muster" / "local.json").exists():
        subprocess.run([folder / ".venv" / "bin" / "muster", "local", "down"], cwd=folder, check=True)


def test_the_quick_tour_shows_what_its_page_promises(clone: Path) -> None:
    # The shell of a user may have any AWS settings.
    environment = {**os.environ, "AWS_PROFILE": "nobody", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    for name in ("NO_COLOR", "VIRTUAL_ENV", "MUSTER_STACK", "MAKEFLAGS", "MAKELEVEL"):
        environment.pop(name, None)
    steps = tour()
    assert len(steps) == 11
    with Terminal(clone, environment, columns=120) as terminal:
        for step in steps:
            answer = terminal.run(step.command, seconds=120)
            assert answer.code == 0, answer.text
            parts = [re.escape(part) for part in "\n".join(step.promised).split("…")]
            pattern = ".*".join(parts)
            assert re.search(f"^{pattern}", answer.text, re.MULTILINE | re.DOTALL), answer.text
    assert (clone / "tour.html").stat().st_size > 10_000
    assert not (clone / ".muster" / "local.json").exists()
