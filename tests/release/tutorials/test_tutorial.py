"""The tutorial, typed into a terminal in an empty folder, with Muster installed from its wheel."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.newcomer import FIRST_MODEL, newcomer_shell
from tests.support.source_patch import ROOT
from tests.support.terminal import Terminal, typed

PAGES = [f"tutorial/{name}.md" for name in ("demo", "your-code", "your-data", "your-gpus", "production")]
AS_TYPED = {
    # Other tests have clouds of their own.
    "muster local up": "muster local up --port 0",
    # The shell's AWS is the embedded cloud, which asks no question.
    "muster deploy": "muster deploy --target local",
    "muster deploy --diff": "muster deploy --target local --diff",
    "muster deploy --settings team-a.toml": "muster deploy --target local --settings team-a.toml",
    "muster destroy": "muster destroy --target local --yes",
}


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A new user's shell, in an empty folder."""
    environment = newcomer_shell(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    with Terminal(home, environment, columns=220) as opened:
        yield opened
        # An interrupted tutorial leaves its embedded cloud running.
        opened.run("muster local down")


@pytest.mark.timeout(1800)  # five pages and a guide, with eight deployments
def test_the_tutorial_shows_what_its_pages_promise(terminal: Terminal) -> None:
    commands = [command for page in PAGES for command in typed(page, terminal, AS_TYPED)]
    assert (terminal.home / "first.html").stat().st_size > 10_000
    assert (terminal.home / "own-model" / "model.safetensors").exists()
    # The slope and the intercept of the data.
    logged = terminal.run("muster logs numbers --rank 0 --regex slope").text
    found = re.search(r"slope=(\S+) intercept=(\S+)", logged)
    assert found is not None, logged
    assert (float(found[1]), float(found[2])) == (pytest.approx(2, abs=0.1), pytest.approx(1, abs=0.1))
    deploy_as_the_guide_does(terminal)
    # From an empty machine to one's own model: the commands that cannot be left out.
    assert len(FIRST_MODEL) == 6
    assert [command for command in dict.fromkeys(commands) if command in FIRST_MODEL] == [*FIRST_MODEL]


def deploy_as_the_guide_does(terminal: Terminal) -> None:
    """The commands of docs/deploying.md, in the shell of the tutorial; it names a clone, and files of its reader."""
    (terminal.home / "examples").symlink_to(ROOT / "examples")
    (terminal.home / "team-a.toml").write_text('[stack]\nname = "Team-A"\n', encoding="utf-8")
    terminal.run("export REGISTRY=registry OLD_BUCKET=my-team-data DATA=my-team-data")
    list_runs = "muster list"
    typed("deploying.md", terminal, {**AS_TYPED, list_runs: f"{list_runs}; unset MUSTER_STACK"})
