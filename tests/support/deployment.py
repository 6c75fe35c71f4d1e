"""A stack deployed without the CDK CLI: its files are uploaded, and CloudFormation makes it from its template.

Node is not started. tests/infra/test_deploy_command.py compares what comes of it with what the CDK CLI deploys.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import WaiterError

from muster.contract.document import digest
from muster.infra.deploy.cdk_tools import ASSEMBLY, cdk_environment
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import Platform, Tables
from muster.local import LocalCloud
from tests.support.once import once
from tests.support.template import ROOT

_BOOTSTRAP_VERSION = "/cdk-bootstrap/hnb659fds/version"
"""The parameter by which a template knows that the CDK's own bucket is there."""


def synthesized(factory: pytest.TempPathFactory, tables: Tables) -> Path:
    """The cloud assembly of a stack with these settings, for the embedded cloud: once for all workers of a session."""
    settings = parse_settings(tables, Platform.LOCAL)

    def synthesize(folder: Path) -> None:
        # Nothing of the caller's AWS is in the environment: every cloud gets the same assembly.
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_"))}
        environment = cdk_environment(plain, Platform.LOCAL, folder, settings)
        subprocess.run([sys.executable, "-m", "muster.infra.app"], cwd=ROOT, env=environment, check=True)

    return once(factory, f"assembly-{digest(settings.tables)[:12]}", synthesize) / ASSEMBLY


def create_stack(cloud: LocalCloud, assembly: Path) -> dict[str, str]:
    """Make the stack of an assembly, as `cdk deploy` does with a new one; its outputs.

    Raises:
        AssertionError: CloudFormation could not make it; the message has the reasons.
    """
    place = {"${AWS::AccountId}": cloud.state.account_id, "${AWS::Region}": cloud.state.region}
    manifest = json.loads((assembly / "manifest.json").read_text(encoding="utf-8"))["artifacts"]
    [(name, stack)] = [item for item in manifest.items() if item[1]["type"] == "aws:cloudformation:stack"]
    [files] = assembly.glob("*.assets.json")
    _publish(cloud, assembly, json.loads(files.read_text(encoding="utf-8"))["files"], place)
    bucket, _, key = _filled(stack["properties"]["stackTemplateAssetObjectUrl"], place)[len("s3://") :].partition("/")
    formation: Any = cloud.client("cloudformation")
    formation.create_stack(
        StackName=name,
        TemplateURL=f"https://s3.{cloud.state.region}.amazonaws.com/{bucket}/{key}",
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
    )
    try:
        formation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 0.1})
    except WaiterError as error:
        events = formation.describe_stack_events(StackName=name)["StackEvents"]
        raise AssertionError(
            [item["ResourceStatusReason"] for item in events if "ResourceStatusReason" in item]
        ) from error
    [made] = formation.describe_stacks(StackName=name)["Stacks"]
    return {item["OutputKey"]: item["OutputValue"] for item in made["Outputs"]}


def _publish(cloud: LocalCloud, assembly: Path, files: dict[str, Any], place: dict[str, str]) -> None:
    """Upload the files of an assembly into the CDK's bucket, which is made where it is not there yet."""
    s3: Any = cloud.client("s3")
    region = cloud.state.region
    located = {} if region == "us-east-1" else {"CreateBucketConfiguration": {"LocationConstraint": region}}
    for file in files.values():
        assert file["source"]["packaging"] == "file", file
        for destination in file["destinations"].values():
            bucket = _filled(destination["bucketName"], place)
            if bucket not in [item["Name"] for item in s3.list_buckets()["Buckets"]]:
                s3.create_bucket(Bucket=bucket, **located)
            with (assembly / file["source"]["path"]).open("rb") as body:
                s3.put_object(Bucket=bucket, Key=destination["objectKey"], Body=body)
    cloud.client("ssm").put_parameter(Name=_BOOTSTRAP_VERSION, Value="30", Type="String", Overwrite=True)


def _filled(text: str, place: dict[str, str]) -> str:
    for variable, value in place.items():
        text = text.replace(variable, value)
    return text
