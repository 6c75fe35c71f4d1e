"""app.py as a user meets it when something is missing or wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.template import app_environment, run_app


def test_without_node_there_is_one_line(tmp_path: Path) -> None:
    outcome = run_app({**app_environment({}, tmp_path), "PATH": str(tmp_path)})
    assert outcome.returncode == 1
    assert outcome.stderr.splitlines() == [
        "Node.js is not on the PATH and the CDK needs it: install node 20 or newer from nodejs.org."
    ]


@pytest.mark.parametrize("context", [{"job_prefix": "no-hyphens"}, {"rearm_seconds": "soon"}])
def test_a_wrong_context_key_is_one_line_and_makes_nothing(tmp_path: Path, context: dict[str, str]) -> None:
    outcome = run_app(app_environment(context, tmp_path / "out"))
    [key] = context
    assert outcome.returncode == 1
    assert len(outcome.stderr.splitlines()) == 1
    assert f"The context key {key} is" in outcome.stderr
    assert not list(tmp_path.rglob("*.template.json"))
