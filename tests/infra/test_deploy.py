"""The deployed stack, what its roles may do there, and deployments that cannot work."""

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.infra.deploy import deployment
from muster.infra.deploy.cdk_tools import DeployError
from muster.infra.deploy.deployment import Assembly, deploy
from muster.infra.settings.stack_settings import Platform, StackSettings
from tests.support.deployed import Deployed


def test_the_bucket_refuses_an_unconditional_write_even_of_a_function(deployed_stack: Deployed) -> None:
    cloud, bucket = deployed_stack.cloud, deployed_stack.bucket
    iam = cloud.client("iam")
    functions = {
        one["Handler"].split(".")[1]: one["Role"] for one in cloud.client("lambda").list_functions()["Functions"]
    }

    def caller(function: str) -> Callable[..., str]:
        """What S3 answers to a user with the policy of a function's role: the code of an error, or `done`."""
        role, user = functions[function].rpartition("/")[2], f"caller-{uuid.uuid4()}"
        document = iam.get_role_policy(RoleName=role, PolicyName="Function")["PolicyDocument"]
        iam.create_user(UserName=user)
        iam.put_user_policy(UserName=user, PolicyName="Function", PolicyDocument=json.dumps(document))
        key = iam.create_access_key(UserName=user)["AccessKey"]
        identity = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
        s3 = cloud.client("s3", **identity)

        def put(name: str, **condition: str) -> str:
            try:
                s3.put_object(Bucket=bucket, Key=name, Body=b"", **condition)
            except s3.exceptions.ClientError as error:
                return str(error.response["Error"]["Code"])
            return "done"

        return put

    plan, attempt, folder = caller("plan"), caller("attempt"), f"control/{uuid.uuid4()}"
    assert plan(f"{folder}/plan.json") == "AccessDenied"
    assert plan(f"{folder}/plan.json", IfNoneMatch="*") == "done"
    assert plan(f"{folder}/plan.json", IfNoneMatch="*") == "PreconditionFailed"
    record = f"{folder}/replicas/0.json"
    assert attempt(record) == "AccessDenied"
    assert attempt(record, IfNoneMatch="*") == "done"
    etag = cloud.client("s3").head_object(Bucket=bucket, Key=record)["ETag"]
    assert attempt(record, IfMatch=etag) == "done"


WRONG = [
    (Platform.LOCAL, {}, "AWS_ENDPOINT_URL is not set"),
    (Platform.LOCAL, {"": "https://sts.us-east-1.amazonaws.com"}, "AWS_ENDPOINT_URL is https://sts"),
    (Platform.LOCAL, {"": "https://localhost.example.com:4570"}, "AWS_ENDPOINT_URL is https://localhost.example"),
    (Platform.LOCAL, {"": "https://10.0.0.7:4570"}, "AWS_ENDPOINT_URL is https://10.0.0.7"),
    (
        Platform.LOCAL,
        {"": "https://localhost:4570", "_IAM": "https://iam.amazonaws.com"},
        "AWS_ENDPOINT_URL_IAM is https://iam",
    ),
    (Platform.AWS, {"": "https://localhost:4570"}, "AWS_ENDPOINT_URL is https://localhost"),
    (Platform.AWS, {"_S3": "https://localhost:4570"}, "AWS_ENDPOINT_URL_S3 is https://localhost"),
]
"""A target, endpoints by the end of their variables, and what is found."""


def test_it_never_reaches_the_wrong_cloud(tmp_path: Path) -> None:
    for target, endpoints, found in WRONG:
        environment = {"PATH": os.environ["PATH"]}
        environment |= {f"AWS_ENDPOINT_URL{name}": url for name, url in endpoints.items()}
        with pytest.raises(DeployError, match=f"^{found}") as refused:
            deploy(environment, target=target, settings=StackSettings(), outputs=tmp_path / "deploy" / "outputs.json")
        assert "\n" not in str(refused.value)
        assert not list(tmp_path.iterdir()), found


def test_a_command_of_the_cdk_that_fails_is_a_short_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli = tmp_path / "cdk"
    cli.write_text("#!/bin/sh\necho unreachable\nexit 1\n", encoding="utf-8")
    cli.chmod(0o755)
    monkeypatch.setattr(deployment, "cdk_program", lambda _: cli)
    assembly = Assembly(
        {"PATH": os.environ["PATH"], "AWS_ENDPOINT_URL": "https://localhost:9"},
        target=Platform.LOCAL,
        settings=StackSettings(),
        outputs=tmp_path / "outputs.json",
        log=tmp_path / "log",
    )
    with pytest.raises(DeployError, match="`cdk bootstrap` ended with exit code 1"):
        assembly.bootstrap("aws://123456789012/us-east-1")
    assert "unreachable" in (tmp_path / "log").read_text(encoding="utf-8")
