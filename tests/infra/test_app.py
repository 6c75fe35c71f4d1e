"""app.py as a user meets it when something is missing or wrong."""

from __future__ import annotations

from pathlib import Path

from tests.support.template import app_environment, run_app


def test_without_node_there_is_one_line(tmp_path: Path) -> None:
    outcome = run_app({**app_environment({}, tmp_path), "PATH": str(tmp_path)})
    assert outcome.returncode == 1
    assert outcome.stderr.splitlines() == [
        "Node.js is not on the PATH and the CDK needs it: install node 20 or newer from nodejs.org."
    ]


def test_wrong_settings_are_all_refused_at_once_and_make_nothing(tmp_path: Path) -> None:
    settings = {"stack": {"job_prefix": "no-hyphens"}, "runs": {"rearm_seconds": "soon"}}
    outcome = run_app(app_environment(settings, tmp_path / "out"))
    assert outcome.returncode == 1
    [first, prefix, rearm] = outcome.stderr.splitlines()
    assert first == "muster.toml: 2 problems; nothing was changed."
    assert "line 2: stack.job_prefix: found 'no-hyphens'" in prefix
    assert "line 5: runs.rearm_seconds: found 'soon'; write a whole number" in rearm
    assert not list(tmp_path.rglob("*.template.json"))
