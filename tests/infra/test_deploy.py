"""Deploying: to the embedded cloud with the real CLI, and never to the wrong cloud."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from muster.contract.aws.session_tags import TAG_LINEAGE, TAG_MODEL, TAG_RUN
from muster.infra.deploy.cdk_tools import DeployError, NodeMissingError
from muster.infra.deploy.deployment import deploy
from muster.infra.settings.stack_settings import Platform, StackSettings
from muster.local import LocalCloud
from tests.plugins.stack import REARM_SECONDS
from tests.support.deployed import Deployed
from tests.support.template import ROOT


@pytest.fixture
def cloud(deployed_stack: Deployed) -> LocalCloud:
    return deployed_stack.cloud


@pytest.fixture
def outputs(deployed_stack: Deployed) -> Mapping[str, str]:
    return deployed_stack.outputs


def test_the_template_deploys_as_it_is(cloud: LocalCloud, outputs: Mapping[str, str]) -> None:
    machine = cloud.client("stepfunctions").describe_state_machine(stateMachineArn=outputs["StateMachineArn"])
    definition = machine["definition"]
    assert "${" not in definition
    train = json.loads(definition)["States"]["Train the replicas"]["ItemProcessor"]["States"]
    assert f", {REARM_SECONDS})" in train["Wait for the launch slot"]["Output"]
    encryption = cloud.client("s3").get_bucket_encryption(Bucket=outputs["BucketName"])
    assert encryption["ServerSideEncryptionConfiguration"]["Rules"]
    assert outputs["JobPrefix"] == "muster"
    assert outputs["Region"] == cloud.state.region


OF_RUN = {TAG_LINEAGE: "run", TAG_RUN: "run"}
_numbers = itertools.count(1)


class Caller:
    """A user with the policy of one of the stack's roles, which the embedded cloud evaluates.

    `tags` are the user's; a role has them from its session.
    """

    def __init__(self, cloud: LocalCloud, outputs: Mapping[str, str], role: str, policy: str, **tags: str) -> None:
        iam = cloud.client("iam")
        document = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
        user = f"caller-{next(_numbers)}"
        iam.create_user(UserName=user, Tags=[{"Key": key, "Value": value} for key, value in tags.items()])
        iam.put_user_policy(UserName=user, PolicyName=policy, PolicyDocument=json.dumps(document))
        key = iam.create_access_key(UserName=user)["AccessKey"]
        self._bucket = outputs["BucketName"]
        self._s3 = cloud.client(
            "s3", aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"]
        )

    def answer(self, operation: str, **arguments: object) -> str:
        """The code of the error that S3 answers, or `done`."""
        try:
            getattr(self._s3, operation)(Bucket=self._bucket, **arguments)
        except self._s3.exceptions.ClientError as error:
            return str(error.response["Error"]["Code"])
        return "done"


def test_a_replica_reaches_the_rendezvous_and_not_the_control_plane(
    cloud: LocalCloud, outputs: Mapping[str, str]
) -> None:
    replica = Caller(cloud, outputs, outputs["ReplicaRoleArn"].rpartition("/")[2], "Replica", **OF_RUN)
    record = "control/run/replicas/0.json"
    cloud.client("s3").put_object(Bucket=outputs["BucketName"], Key=record, Body=b"token")
    assert replica.answer("put_object", Key="rendezvous/run/x", Body=b"", IfNoneMatch="*") == "done"
    assert replica.answer("put_object", Key="rendezvous/run/x", Body=b"", IfNoneMatch="*") == "PreconditionFailed"
    assert replica.answer("put_object", Key="checkpoints/run/r0/x", Body=b"") == "done"
    # It may not list the whole bucket, so S3 does not say whether a key exists.
    assert replica.answer("get_object", Key="rendezvous/run/missing") == "AccessDenied"
    assert replica.answer("put_object", Key="rendezvous/other/x", Body=b"", IfNoneMatch="*") == "AccessDenied"
    assert replica.answer("list_objects_v2", Prefix="rendezvous/run/") == "done"
    assert replica.answer("get_object", Key=record) == "AccessDenied"
    assert replica.answer("put_object", Key=record, Body=b"", IfNoneMatch="*") == "AccessDenied"
    assert replica.answer("delete_object", Key=record) == "AccessDenied"
    assert replica.answer("list_objects_v2", Prefix="control/") == "AccessDenied"
    assert replica.answer("put_object", Key="runs/run/document.json", Body=b"", IfNoneMatch="*") == "AccessDenied"
    assert replica.answer("delete_object", Key="output/run/x") == "AccessDenied"


def test_a_replica_reads_the_model_from_which_its_run_starts_and_nothing_else_of_the_other_run(
    cloud: LocalCloud, outputs: Mapping[str, str]
) -> None:
    role = outputs["ReplicaRoleArn"].rpartition("/")[2]
    for key in ("output/first/model/x", "output/first/job/x", "output/second/model/x", "checkpoints/first/r0/x"):
        cloud.client("s3").put_object(Bucket=outputs["BucketName"], Key=key, Body=b"x")
    replica = Caller(cloud, outputs, role, "Replica", **OF_RUN, **{TAG_MODEL: "first/model"})
    assert replica.answer("get_object", Key="output/first/model/x") == "done"
    assert replica.answer("list_objects_v2", Prefix="output/first/model/") == "done"
    assert replica.answer("put_object", Key="output/first/model/x", Body=b"") == "AccessDenied"
    for key in ("output/first/job/x", "output/second/model/x", "checkpoints/first/r0/x"):
        assert replica.answer("get_object", Key=key) == "AccessDenied"
    assert replica.answer("list_objects_v2", Prefix="output/first/") == "AccessDenied"
    # What it may do without the model it may do with it, and the other way round.
    assert replica.answer("list_objects_v2", Prefix="rendezvous/run/") == "done"
    other = Caller(cloud, outputs, role, "Replica", **OF_RUN)
    assert other.answer("get_object", Key="output/first/model/x") == "AccessDenied"
    assert other.answer("list_objects_v2", Prefix="rendezvous/run/") == "done"


def test_the_bucket_refuses_an_unconditional_write_even_of_a_function(
    cloud: LocalCloud, outputs: Mapping[str, str]
) -> None:
    def caller(name: str) -> Caller:
        functions = cloud.client("lambda").list_functions()["Functions"]
        [role] = [f["Role"] for f in functions if f["Handler"] == f"lambdas.{name}.handler"]
        return Caller(cloud, outputs, role.rpartition("/")[2], "Function")

    plan, attempt = caller("plan"), caller("attempt")
    assert plan.answer("put_object", Key="control/new/plan.json", Body=b"") == "AccessDenied"
    assert plan.answer("put_object", Key="control/new/plan.json", Body=b"", IfNoneMatch="*") == "done"
    assert plan.answer("put_object", Key="control/new/plan.json", Body=b"", IfNoneMatch="*") == "PreconditionFailed"
    assert plan.answer("put_object", Key="runs/new/document.json", Body=b"") == "AccessDenied"
    record = "control/new/replicas/0.json"
    assert attempt.answer("put_object", Key=record, Body=b"") == "AccessDenied"
    assert attempt.answer("put_object", Key=record, Body=b"", IfNoneMatch="*") == "done"
    etag = cloud.client("s3").head_object(Bucket=outputs["BucketName"], Key=record)["ETag"]
    assert attempt.answer("put_object", Key=record, Body=b"2", IfMatch=etag) == "done"
    assert attempt.answer("put_object", Key=record, Body=b"3", IfMatch=etag) == "PreconditionFailed"
    assert attempt.answer("get_object", Key="control/new/stopping.json") == "NoSuchKey"


@pytest.mark.parametrize(
    ("target", "endpoints", "found"),
    [
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
    ],
)
def test_it_never_reaches_the_wrong_cloud(
    tmp_path: Path, target: Platform, endpoints: dict[str, str], found: str
) -> None:
    environment = {"PATH": os.environ["PATH"]} | {f"AWS_ENDPOINT_URL{name}": url for name, url in endpoints.items()}
    with pytest.raises(DeployError, match=f"^{found}") as refused:
        deploy(environment, target=target, settings=StackSettings(), outputs=tmp_path / "deploy" / "outputs.json")
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_without_node_there_is_one_line(tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "AWS_ENDPOINT_URL": "https://localhost:4570"}
    with pytest.raises(NodeMissingError, match=r"^Node.js is not on the PATH.*install node 20"):
        deploy(environment, target=Platform.LOCAL, settings=StackSettings(), outputs=tmp_path / "outputs.json")


def test_an_unreachable_cloud_is_a_short_error(cloud: LocalCloud, tmp_path: Path) -> None:
    unreachable = {"AWS_ENDPOINT_URL": "https://localhost:9", "AWS_ENDPOINT_URL_S3": "https://localhost:9"}
    with pytest.raises(DeployError, match="The stack was not deployed: `cdk bootstrap` ended with exit code 1"):
        deploy(
            {**cloud.environment(), **unreachable},
            target=Platform.LOCAL,
            settings=StackSettings(),
            outputs=tmp_path / "outputs.json",
            log=tmp_path / "log",
        )


def test_the_cli_runs_the_app_from_the_projects_own_environment() -> None:
    app = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["app"]
    assert app == ".venv/bin/python app.py"
