"""The stack in an app of somebody else, with constructs, feature flags and a package `infra` of its own."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from muster.infra.deploy.bundle import build_replica_package
from muster.infra.deploy.cdk_tools import JSII_ENVIRONMENT
from muster.infra.settings.stack_settings import job_prefix_of
from tests.infra.variants import Variant
from tests.support.template import ROOT

_SHOWN = re.compile(r"## In a CDK app of your own\n.*?^```python\n(.*?)^app\.synth", re.DOTALL | re.MULTILINE)
"""What docs/deploying.md shows, without the synthesis."""
MORE = """
import sys
from pathlib import Path

from aws_cdk import aws_events_targets as targets, aws_sqs as sqs

from infra.data import TrainingData, training_settings  # the app's own package
from muster import MusterError
from muster.infra.build_places import WORKFLOW
from muster.infra.stack import StackFiles

archive = Path(sys.argv[1])
files = StackFiles(archive, archive, WORKFLOW)
MusterStack(app, "Muster", files=files)
try:
    MusterStack(app, "Team-B", files=files, settings=training_settings("Team-C"))
except MusterError as error:
    print(error)
data = TrainingData(app, "Data", env=place)
rule = events.Rule(data, "Ends", event_bus=training.bus, event_pattern=ends)
rule.add_target(targets.SqsQueue(sqs.Queue(data, "Queue")))
training.bucket.grant_read(data.reader)
training.state_machine.grant_start_execution(data.reader)
training.notifications.grant_subscribe(data.reader)
app.synth()
"""
PACKAGE = """
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from muster.cdk import StackSettings


def training_settings(name):
    return StackSettings.model_validate({"stack": {"name": name}})


class TrainingData(Stack):
    def __init__(self, scope, construct_id, **options):
        super().__init__(scope, construct_id, **options)
        self.reader = iam.Role(self, "Reader", assumed_by=iam.AccountRootPrincipal())
"""


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The templates of the app, by the names of their stacks."""
    folder = tmp_path_factory.mktemp("app")
    (folder / "infra").mkdir()
    (folder / "infra" / "__init__.py").touch()
    (folder / "infra" / "data.py").write_text(PACKAGE, encoding="utf-8")
    [shown] = _SHOWN.findall((ROOT / "docs" / "deploying.md").read_text(encoding="utf-8"))
    (folder / "app.py").write_text(shown + MORE, encoding="utf-8")
    archive = build_replica_package(folder=folder)
    # Other flags than those of Muster's own app, as the CDK CLI hands them over.
    flags = {"@aws-cdk/aws-iam:minimizePolicies": True, "@aws-cdk/core:target-partitions": ["aws"]}
    context = {"CDK_CONTEXT_JSON": json.dumps(flags), "CDK_OUTDIR": str(folder / "out")}
    environment = {**os.environ, **JSII_ENVIRONMENT, "CDK_VALIDATION": "false", **context}
    command = [sys.executable, "app.py", str(archive)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "The construct is Team-B and its settings name the stack Team-C: write the same name, or none.\n"
    )
    return {
        path.name.partition(".")[0]: json.loads(path.read_text(encoding="utf-8"))
        for path in (folder / "out").glob("*.template.json")
    }


def test_the_template_is_the_same_in_every_app(templates: dict[str, dict[str, Any]], variant: Variant) -> None:
    def without_code(template: dict[str, Any]) -> dict[str, Any]:
        for resource in template["Resources"].values():
            resource["Properties"].pop("Code", None)
        return template

    assert without_code(templates["Muster"]) == without_code(variant("bare").body)


def test_the_app_uses_what_the_stack_has(templates: dict[str, dict[str, Any]]) -> None:
    training, data = templates["Training"], templates["Data"]
    assert training["Metadata"]["Muster"]["stack"]["name"] == "Training"
    assert training["Outputs"]["JobPrefix"]["Value"] == job_prefix_of("Training")
    assert any(name.startswith("OurRule") for name in training["Resources"])
    assert "s3:::team-data/sets/*" in json.dumps(training)
    # The app gave its own role rights on the stack's parts.
    [policy] = [item for item in data["Resources"].values() if item["Type"] == "AWS::IAM::Policy"]
    allowed = json.dumps(policy)
    assert all(action in allowed for action in ("s3:GetObject*", "states:StartExecution", "sns:Subscribe"))
    [rule] = [item["Properties"] for item in data["Resources"].values() if item["Type"] == "AWS::Events::Rule"]
    assert "Training:ExportsOutput" in json.dumps(rule["EventBusName"])
