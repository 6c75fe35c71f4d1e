"""The SDK through botocore: finding a stack, what services answer, long logs. The rest is in tests/unit/client."""

import json
from datetime import UTC, datetime, timedelta

import boto3
import pytest

from muster import Muster
from muster.client.aws.cloud import Cloud
from muster.client.client_errors import (
    DeniedError,
    ForeignStackError,
    SeveralStacksError,
    StackNotFoundError,
    UnnamedStackError,
)
from muster.client.logs.log_lines import LogQuery
from muster.client.logs.log_reader import LogReader
from muster.contract.errors import SpecError
from muster.contract.names import JobName
from muster.local.faults import CallError
from tests.support.client_stack import deploy
from tests.support.workshop import Workshop, turn_to

OUTPUTS = ("StateMachineArn", "BucketName", "JobPrefix", "ReplicaRoleArn")
GROUP = "/aws/sagemaker/TrainingJobs"


@pytest.fixture
def place(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    turn_to(monkeypatch, workshop.cloud)
    return workshop


@pytest.fixture
def stack(place: Workshop) -> str:
    """A stack with a client's outputs, whose runs only wait."""
    return deploy(place)


def spec(place: Workshop) -> dict[str, object]:
    return {"name": place.name("digits"), "replicas": 2, "trainer": "package.module:train"}


def add_stack(place: Workshop, region: str, name: str, *outputs: str) -> None:
    """A stack with these outputs and no run, in a region."""
    template = {
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {output: {"Value": f"{output}-of-{name.lower()}"} for output in outputs},
    }
    client = place.cloud.client("cloudformation", region_name=region)
    client.create_stack(StackName=name, TemplateBody=json.dumps(template))
    client.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 0.05})


def test_without_a_name_the_default_stack_is_meant_or_else_the_only_one_of_muster(place: Workshop) -> None:
    region = "eu-north-1"
    for stack in place.cloud.client("cloudformation", region_name=region).describe_stacks()["Stacks"]:
        place.cloud.client("cloudformation", region_name=region).delete_stack(StackName=stack["StackName"])
    add_stack(place, region, "Database", "BucketName")
    with pytest.raises(StackNotFoundError, match=f"Muster in {region}"):
        _ = Muster(region=region).bucket
    add_stack(place, region, "Team-B", *OUTPUTS)
    assert (Muster(region=region).bucket, Muster(region=region).stack) == ("BucketName-of-team-b", "Team-B")
    add_stack(place, region, "Team-A", *OUTPUTS)
    with pytest.raises(SeveralStacksError, match=f"{region}: Team-A, Team-B"):
        _ = Muster(region=region).bucket
    add_stack(place, region, "Muster", *OUTPUTS)
    assert Muster(region=region).stack == "Muster"
    assert Muster("Team-B", region=region).bucket == "BucketName-of-team-b"


def test_who_may_not_ask_for_the_default_stack_finds_the_only_one_or_is_told_to_name_it(place: Workshop) -> None:
    region = "eu-west-3"
    add_stack(place, region, "Team-C", *OUTPUTS)

    def session(**resources: str) -> boto3.Session:
        action, named = "cloudformation:DescribeStacks", resources.items()
        key = place.access_key([{"Effect": one, "Action": action, "Resource": resource} for one, resource in named])
        return boto3.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name=region)

    assert Muster(session=session(Allow="*", Deny="arn:aws:cloudformation:*:*:stack/Muster/*")).stack == "Team-C"
    own = session(Allow="arn:aws:cloudformation:*:*:stack/Team-C/*")
    with pytest.raises(UnnamedStackError, match=r"DescribeStacks.* Name the stack with --stack, or .* MUSTER_STACK\.$"):
        _ = Muster(session=own).bucket
    assert Muster("Team-C", session=own).bucket == "BucketName-of-team-c"
    with pytest.raises(DeniedError, match="Use a role that has this permission"):
        _ = Muster("Team-D", session=own).bucket


def test_a_missing_stack_and_a_foreign_one_are_told_apart(place: Workshop) -> None:
    with pytest.raises(StackNotFoundError, match="Nowhere in us-east-1"):
        Muster("Nowhere").launch(spec(place))
    with pytest.raises(ForeignStackError, match="JobPrefix"):
        Muster(deploy(place, prefix="")).launch(spec(place))


def test_plan_looks_for_the_data_of_channels(stack: str, place: Workshop) -> None:
    bucket = place.bucket
    place.s3.put_object(Bucket=bucket, Key="data/one.csv", Body=b"1,2")

    def planned(*uris: str, kind: str = "S3Prefix") -> dict[str, str]:
        """Which channels have a problem, by their number, and the words of it."""
        channels = [
            {"channel_name": f"c{index}", "data_source": {"s3_data_source": {"s3_uri": uri, "s3_data_type": kind}}}
            for index, uri in enumerate(uris)
        ]
        image = "muster-local/python:latest"
        try:
            Muster(stack).plan({**spec(place), "image": image, "input_data_config": channels})
        except SpecError as error:
            return {problem.field.split(".")[1]: problem.allowed for problem in error.problems}
        return {}

    assert planned(f"s3://{bucket}/data/", f"s3://{bucket}/data") == {}
    assert planned(f"s3://{bucket}/data/one.csv", kind="ManifestFile") == {}
    assert planned(f"s3://{bucket}/data/", f"s3://{bucket}/nothing/", f"s3://no-{bucket}/data/") == {
        "1": "no object begins with it",
        "2": "no such bucket",
    }
    place.cloud.faults.add(CallError(service="s3", operation="ListObjectsV2", code="AccessDenied", status=403))
    assert planned(f"s3://{bucket}/nothing/") == {}


def test_a_role_is_found_by_its_name(stack: str, place: Workshop) -> None:
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    arn = place.make_role([{"Effect": "Deny", "Action": ["*"], "Resource": "*"}], trust)
    run = Muster(stack).launch({**spec(place), "role_arn": arn.rpartition("/")[2]})
    assert run.spec()["role_arn"] == arn
    with pytest.raises(SpecError, match=r"role_arn: found 'nobody'"):
        Muster(stack).launch({**spec(place), "role_arn": "nobody"})


def test_equal_times_beyond_a_page_of_a_log_are_read_once_each(stack: str, place: Workshop) -> None:
    name, now = place.name("written"), datetime.now(UTC)
    if GROUP not in {group["logGroupName"] for group in place.logs.describe_log_groups()["logGroups"]}:
        place.logs.create_log_group(logGroupName=GROUP)
    numbered = [f"line {number}" for number in range(4_500)]
    for rank in range(2):
        stream = f"{JobName('muster', name, rank, 1)}/algo-1-1"
        place.logs.create_log_stream(logGroupName=GROUP, logStreamName=stream)
        for age, lines in ((2, numbered[:2_500]), (1, numbered[2_500:])):
            at = int((now - timedelta(seconds=age)).timestamp() * 1000)
            events = [{"timestamp": at, "message": line} for line in lines]
            place.logs.put_log_events(logGroupName=GROUP, logStreamName=stream, logEvents=events)
    lines = list(LogReader(Cloud(stack, boto3.Session()), LogQuery("muster", name)).read_lines())
    assert len(lines) == 9_000
    for rank in range(2):
        assert [line.message for line in lines if line.rank == rank] == numbered
