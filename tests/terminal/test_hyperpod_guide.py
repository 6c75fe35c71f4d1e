"""The first run of docs/hyperpod.md, typed into a terminal in an empty folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shown_pages import Step, parts
from tests.support.terminal import Terminal

BIN = Path(sys.executable).parent
UP = "muster local up --hyperpod --nodes 2"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Terminal]:
    """A shell in an empty folder, without an embedded cloud."""
    foreign = ("AWS_", "MUSTER_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    home = tmp_path / "home"
    home.mkdir()
    with Terminal(home, {**clean, "PATH": f"{BIN}:{clean['PATH']}"}, columns=200) as terminal:
        yield terminal
        # An interrupted guide leaves its embedded cloud running.
        terminal.run("muster local down")


@pytest.mark.timeout(600)
def test_the_first_run_on_a_cluster_shows_what_its_page_promises(reader: Terminal) -> None:
    typed = 0
    for part in parts("hyperpod.md"):
        if not isinstance(part, Step):
            path = reader.home / part.path
            path.parent.mkdir(exist_ok=True)
            path.write_text(part.text, encoding="utf-8")
            continue
        # Other tests have clouds of their own.
        command = part.command.replace(UP, f"{UP} --port 0")
        answer = reader.run(command, seconds=240)
        text = answer.text.partition("\n")[2]
        assert answer.code == 0, f"{part.command}\n{text}"
        assert part.shows(text), f"{part.command}\n{text}"
        typed += 1
    assert typed == 9
