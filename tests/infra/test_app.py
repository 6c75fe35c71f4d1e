"""The CDK app as a user meets it when something is missing or wrong, and an app that is begun before its cloud is."""

import json
import os
from pathlib import Path

import pytest

from muster.infra.deploy.deployment import Assembly, Synthesis
from muster.infra.settings.stack_settings import LOCAL_IMAGE, Platform, ReplicasTable, StackSettings
from tests.support.template import app_environment, run_app

SETTINGS = StackSettings(replicas=ReplicasTable(image=LOCAL_IMAGE))


def test_without_node_there_is_one_line(tmp_path: Path) -> None:
    outcome = run_app({**app_environment({}, tmp_path), "PATH": str(tmp_path)})
    assert (outcome.returncode, len(outcome.stderr.splitlines())) == (1, 1)
    assert outcome.stderr.startswith("Node.js is not on the PATH")


def test_wrong_settings_are_all_refused_at_once_and_make_nothing(tmp_path: Path) -> None:
    settings = {"stack": {"job_prefix": "no-hyphens"}, "runs": {"rearm_seconds": "soon"}}
    # For the embedded cloud they are read before the CDK is.
    environment = app_environment(settings, tmp_path, target="local")
    outcome = run_app({**environment, "CDK_OUTDIR": str(tmp_path / "cdk.out")})
    assert outcome.returncode == 1
    [first, prefix, rearm] = outcome.stderr.splitlines()
    assert first.startswith("muster.toml: 2 problems")
    assert "line 2: stack.job_prefix: found 'no-hyphens'" in prefix
    assert "line 5: runs.rearm_seconds: found 'soon'" in rearm
    assert not (tmp_path / "cdk.out").exists()


@pytest.fixture
def bare() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


def test_an_assembly_takes_over_what_was_begun_without_a_cloud(tmp_path: Path, bare: dict[str, str]) -> None:
    outputs, log = tmp_path / "outputs.json", tmp_path / "log"
    cloud = bare | {"AWS_ENDPOINT_URL": "https://127.0.0.1:1"}
    with Synthesis(bare, settings=SETTINGS, outputs=outputs, log=log) as synthesis:
        assembly = Assembly(
            cloud, target=Platform.LOCAL, settings=SETTINGS, outputs=outputs, log=log, synthesis=synthesis
        )
        assembly.write()
        begun = synthesis.step.process
    assert begun.returncode == 0
    assert assembly.template["Outputs"]["BucketName"]
    assert LOCAL_IMAGE in json.dumps(assembly.template)


def test_a_synthesis_ends_with_its_block(tmp_path: Path, bare: dict[str, str]) -> None:
    with Synthesis(bare, settings=SETTINGS, outputs=tmp_path / "outputs.json", log=tmp_path / "log") as synthesis:
        assert synthesis.step.process.poll() is None
    assert synthesis.step.process.returncode is not None
