"""The CDK app may start before the embedded cloud answers: it needs nothing of it, and does not outlive its block."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from muster.infra.deploy.deployment import Assembly, Synthesis
from muster.infra.settings.stack_settings import LOCAL_IMAGE, Platform, ReplicasTable, StackSettings

SETTINGS = StackSettings(replicas=ReplicasTable(image=LOCAL_IMAGE))
CLOUD = {"AWS_ENDPOINT_URL": "https://127.0.0.1:1"}


@pytest.fixture
def bare() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


def test_an_assembly_takes_over_what_was_begun_without_a_cloud(tmp_path: Path, bare: dict[str, str]) -> None:
    outputs, log = tmp_path / "outputs.json", tmp_path / "log"
    with Synthesis(bare, settings=SETTINGS, outputs=outputs, log=log) as synthesis:
        assembly = Assembly(
            bare | CLOUD, target=Platform.LOCAL, settings=SETTINGS, outputs=outputs, log=log, synthesis=synthesis
        )
        assembly.write()
        begun = synthesis.step.process
    assert begun.returncode == 0
    assert assembly.template["Outputs"]["BucketName"]
    assert LOCAL_IMAGE in json.dumps(assembly.template)


def test_it_ends_with_its_block(tmp_path: Path, bare: dict[str, str]) -> None:
    with Synthesis(bare, settings=SETTINGS, outputs=tmp_path / "outputs.json", log=tmp_path / "log") as synthesis:
        assert synthesis.step.process.poll() is None
    assert synthesis.step.process.returncode is not None
