"""`muster deploy` and `muster destroy` with the real CDK CLI, once; and that the other tests' stacks are the same."""

import hashlib
import json
from functools import partial
from typing import Any

import pytest

from docs.commands_reference import ANSWERS
from muster.local import LocalCloud
from tests.plugins.stack import SETTINGS, SETTINGS_TEXT
from tests.support.command_server import CommandServer
from tests.support.deployment import create_stack, synthesized
from tests.support.workshop import fast_settings


def stack_of(cloud: LocalCloud) -> tuple[Any, dict[str, str]]:
    """The stack's template, and the types of its resources."""
    formation = cloud.client("cloudformation")
    pages = formation.get_paginator("list_stack_resources").paginate(StackName="Muster")
    found = [one for page in pages for one in page["StackResourceSummaries"]]
    template = formation.get_template(StackName="Muster")["TemplateBody"]
    return template, {one["LogicalResourceId"]: one["ResourceType"] for one in found}


def uploaded(cloud: LocalCloud) -> dict[str, str]:
    """The digests of the files in the CDK's bucket."""
    s3, bucket = cloud.client("s3"), f"cdk-hnb659fds-assets-{cloud.state.account_id}-{cloud.state.region}"
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket=bucket)["Contents"]]
    return {key: hashlib.sha256(s3.get_object(Bucket=bucket, Key=key)["Body"].read()).hexdigest() for key in keys}


def test_a_stack_is_deployed_left_alone_and_destroyed_and_is_what_the_tests_deploy(
    tmp_path_factory: pytest.TempPathFactory, commands: CommandServer
) -> None:
    folder = tmp_path_factory.mktemp("deploy-command")
    (folder / "muster.toml").write_text(SETTINGS_TEXT, encoding="utf-8")
    with LocalCloud.start(folder / "cloud", fast_settings()) as cloud:

        def muster(command: str, *options: str) -> dict[str, Any]:
            words = [command, "--yes", "--json", "--target", "local", *options]
            outcome = commands.run(words, folder, cloud.environment())
            assert outcome.returncode == 0, (outcome.stdout, outcome.stderr)
            ANSWERS[command].model_validate_json(outcome.stdout)
            return dict(json.loads(outcome.stdout))

        first = muster("deploy")
        assert first["deployed"]
        bucket = first["outputs"]["BucketName"]
        by_command = stack_of(cloud)
        again = muster("deploy")
        assert (again["settings"], again["resources"], again["outputs"]) == ([], [], first["outputs"])
        cloud.client("s3").put_object(Bucket=bucket, Key="output/old/result", Body=b"1")
        protect = partial(cloud.client("cloudformation").update_termination_protection, StackName="Muster")
        protect(EnableTerminationProtection=True)
        refused = commands.run(["destroy", "--yes", "--target", "local"], folder, cloud.environment())
        assert refused.returncode == 2
        assert "--no-enable-termination-protection --stack-name Muster --region us-east-1" in refused.stderr
        protect(EnableTerminationProtection=False)
        assert muster("destroy", "--stack", "Muster")["kept_bucket"] == bucket
        stacks = cloud.client("cloudformation").list_stacks()["StackSummaries"]
        assert "Muster" not in [one["StackName"] for one in stacks if one["StackStatus"] != "DELETE_COMPLETE"]

        before = uploaded(cloud)
        outputs = create_stack(cloud, synthesized(tmp_path_factory, SETTINGS))
        assert stack_of(cloud) == by_command
        assert uploaded(cloud) == before, "the same files under the same keys"
        assert outputs.keys() == first["outputs"].keys()
