"""The CDK app as a user meets it when something is missing or wrong."""

import json
from pathlib import Path

from tests.support.template import app_environment, run_app


def test_without_node_there_is_one_line(tmp_path: Path) -> None:
    outcome = run_app({**app_environment({}, tmp_path), "PATH": str(tmp_path)})
    assert (outcome.returncode, len(outcome.stderr.splitlines())) == (1, 1)
    assert outcome.stderr.startswith("Node.js is not on the PATH")


def test_wrong_settings_are_all_refused_at_once_and_make_nothing(tmp_path: Path) -> None:
    settings = tmp_path / "muster.toml"
    settings.write_text('[stack]\njob_prefix = "no-hyphens"\n\n[runs]\nrearm_seconds = "soon"\n', encoding="utf-8")
    # For the embedded cloud they are read before the CDK is.
    context = json.dumps({"settings": str(settings), "target": "local"})
    environment = {**app_environment({}, tmp_path), "CDK_CONTEXT_JSON": context}
    outcome = run_app({**environment, "CDK_OUTDIR": str(tmp_path / "cdk.out")})
    assert outcome.returncode == 1
    [first, prefix, rearm] = outcome.stderr.splitlines()
    assert first.startswith("muster.toml: 2 problems")
    assert "line 2: stack.job_prefix: found 'no-hyphens'" in prefix
    assert "line 5: runs.rearm_seconds: found 'soon'" in rearm
    assert not (tmp_path / "cdk.out").exists()
