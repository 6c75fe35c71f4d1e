"""Regions and partitions on the embedded cloud: what is out of reach is refused as AWS refuses it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from muster.local import LocalCloud
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, fast_settings

FUNCTION = "function:any"
INVOKE = {"Effect": "Allow", "Action": "lambda:InvokeFunction", "Resource": "*"}


def refusal(call: Any, **parameters: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD"])
def test_an_object_is_asked_for_in_the_region_of_its_bucket(workshop: Workshop, method: str) -> None:
    credentials = workshop.cloud.session().get_credentials()
    request = AWSRequest(method, f"{workshop.cloud.endpoint}/{workshop.bucket}/key", data=b"")
    S3SigV4Auth(credentials, "s3", "eu-west-1").add_auth(request)
    pool = urllib3.PoolManager(ca_certs=str(workshop.cloud.state.ca_file), retries=False)
    answer = pool.request(method, request.url, headers=dict(request.headers.items()))
    assert (answer.status, answer.headers["x-amz-bucket-region"]) == (301, "us-east-1")
    if method != "HEAD":
        assert b"<Code>PermanentRedirect</Code>" in answer.data


def test_a_job_lives_in_the_region_of_the_cloud(workshop: Workshop) -> None:
    far = workshop.cloud.client("sagemaker", region_name="eu-west-1")
    code, message = refusal(far.list_training_jobs)
    assert (code, message) == (
        "InvalidSignatureException",
        "Credential should be scoped to us-east-1, not to eu-west-1.",
    )
    assert refusal(far.create_training_job, **workshop.request("failing", "0"))[0] == code


def test_a_role_of_another_partition_is_none(workshop: Workshop) -> None:
    request = workshop.request("failing", "0", RoleArn=workshop.role.replace("arn:aws:", "arn:aws-cn:"))
    assert refusal(workshop.sagemaker.create_training_job, **request)[0] == "ValidationException"


def start_with(workshop: Workshop, resource: str) -> dict[str, Any]:
    """The end of an execution whose one state has this resource and catches everything."""
    stepfunctions = workshop.cloud.client("stepfunctions")
    trust = {"Effect": "Allow", "Principal": {"Service": "states.amazonaws.com"}, "Action": "sts:AssumeRole"}
    state = {
        "Type": "Task",
        "Resource": resource,
        "Parameters": {"FunctionName": "none", "Payload": {}},
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Caught"}],
        "End": True,
    }
    definition = {"StartAt": "Call", "States": {"Call": state, "Caught": {"Type": "Succeed"}}}
    machine = stepfunctions.create_state_machine(
        name=workshop.name("machine"),
        definition=json.dumps(definition),
        roleArn=workshop.make_role([INVOKE], trust),
    )["stateMachineArn"]
    execution = stepfunctions.start_execution(stateMachineArn=machine)["executionArn"]

    def ended() -> dict[str, Any] | None:
        shown: dict[str, Any] = stepfunctions.describe_execution(executionArn=execution)
        return shown if shown["status"] != "RUNNING" else None

    return wait_until("the end of the execution", ended)


def test_an_integration_of_another_partition_ends_the_execution_and_is_not_caught(workshop: Workshop) -> None:
    assert start_with(workshop, "arn:aws:states:::lambda:invoke")["status"] == "SUCCEEDED"
    ended = start_with(workshop, "arn:aws-us-gov:states:::lambda:invoke")
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Runtime")
    assert "Expected 'aws', was 'aws-us-gov'" in ended["cause"]


FOREIGN = ["arn:aws-cn:lambda:us-east-1:123456789012", "arn:aws:lambda:eu-west-1:123456789012"]


@pytest.mark.parametrize("place", FOREIGN)
def test_a_target_of_another_partition_or_region_is_refused(workshop: Workshop, place: str) -> None:
    events, rule = workshop.cloud.client("events"), workshop.name("rule")
    events.put_rule(Name=rule, EventPattern='{"source": ["any"]}')
    code, message = refusal(events.put_targets, Rule=rule, Targets=[{"Id": "one", "Arn": f"{place}:{FUNCTION}"}])
    assert code == "ValidationException"
    assert f"{place}:{FUNCTION}" in message
    schedule = {
        "Name": workshop.name("schedule"),
        "ScheduleExpression": "at(2099-01-01T00:00:00)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {"Arn": f"{place}:{FUNCTION}", "RoleArn": workshop.role},
    }
    assert refusal(workshop.cloud.client("scheduler").create_schedule, **schedule)[0] == "ValidationException"


def test_a_policy_names_its_own_partition(workshop: Workshop) -> None:
    with pytest.raises(ClientError) as caught:
        workshop.make_role([{"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws-cn:s3:::bucket/*"}])
    assert caught.value.response["Error"]["Code"] == "MalformedPolicyDocument"


@pytest.fixture(params=[("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")], ids=lambda pair: pair[1])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Workshop, str]]:
    region, partition = request.param
    with LocalCloud.start(tmp_path, fast_settings(region=region)) as cloud:
        yield Workshop(cloud), partition


def test_a_cloud_of_another_partition_has_its_arns(elsewhere: tuple[Workshop, str]) -> None:
    workshop, partition = elsewhere
    assert workshop.role.startswith(f"arn:{partition}:iam::")
    request = workshop.request("report")
    workshop.sagemaker.create_training_job(**request)
    shown = workshop.end(request["TrainingJobName"])
    assert shown["TrainingJobStatus"] == "Completed"
    assert shown["TrainingJobArn"].startswith(f"arn:{partition}:sagemaker:{workshop.cloud.state.region}:")
    assert start_with(workshop, f"arn:{partition}:states:::lambda:invoke")["status"] == "SUCCEEDED"
    assert start_with(workshop, "arn:aws:states:::lambda:invoke")["error"] == "States.Runtime"
    identity = boto3.Session(
        workshop.cloud.state.access_key_id,
        workshop.cloud.state.secret_access_key,
        region_name=workshop.cloud.state.region,
    ).client("sts", **workshop.cloud.client_options())
    assert identity.get_caller_identity()["Arn"].startswith(f"arn:{partition}:")
