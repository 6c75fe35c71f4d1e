"""The files and commands of docs/recipes.md: every command shows what the page promises."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import muster
from docs.generate import DOCS
from muster.client.cli.program import app
from tests.support.shown_pages import File, parts


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a reader who has written every file of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for part in parts("recipes.md"):
        if isinstance(part, File):
            (tmp_path / part.path).write_text(part.text)
    return tmp_path


def test_every_command_shows_what_the_page_promises(reader: Path) -> None:
    commands = [part for part in parts("recipes.md") if not isinstance(part, File)]
    assert len(commands) > 5
    for step in commands:
        program, *words = shlex.split(step.command)
        assert program == "muster"
        shown = CliRunner().invoke(app, words)
        assert step.shows(shown.output), f"{step.command}\n{shown.output}\n{shown.exception}"


def test_the_python_of_the_page_runs(reader: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [program] = re.findall(
        r"^```python\n(.*?)^```", (DOCS / "recipes.md").read_text(encoding="utf-8"), re.DOTALL | re.M
    )
    launched: list[dict[str, object]] = []
    monkeypatch.setattr(muster, "Muster", lambda: SimpleNamespace(launch=launched.append))
    exec(program, {})  # noqa: S102 - of our own page
    assert [spec["name"] for spec in launched] == ["llama-500", "llama-1000"]
    assert [spec["recipe"] for spec in launched] == [
        {"base": "llama.yaml", "overrides": {"training_config.max_steps": steps}} for steps in (500, 1000)
    ]
