"""Regions and partitions on the embedded cloud: what is out of reach is refused as AWS refuses it."""

from typing import Any

import pytest
import urllib3
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from tests.support.workshop import Workshop


def refusal(call: Any, **parameters: Any) -> str:
    """The code with which a call is refused."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return caught.value.response["Error"]["Code"]


def test_an_object_is_asked_for_in_the_region_of_its_bucket(workshop: Workshop) -> None:
    credentials = workshop.cloud.session().get_credentials()
    pool = urllib3.PoolManager(ca_certs=str(workshop.cloud.state.ca_file), retries=False)
    for method in ("GET", "PUT", "HEAD"):
        request = AWSRequest(method, f"{workshop.cloud.endpoint}/{workshop.bucket}/key", data=b"")
        S3SigV4Auth(credentials, "s3", "eu-west-1").add_auth(request)
        answer = pool.request(method, request.url, headers=dict(request.headers.items()))
        assert (answer.status, answer.headers["x-amz-bucket-region"]) == (301, "us-east-1"), method
        if method != "HEAD":
            assert b"<Code>PermanentRedirect</Code>" in answer.data


def test_a_job_lives_in_the_region_and_partition_of_the_cloud(workshop: Workshop) -> None:
    far = workshop.cloud.client("sagemaker", region_name="eu-west-1")
    assert refusal(far.list_training_jobs) == "InvalidSignatureException"
    assert refusal(far.create_training_job, **workshop.request("failing", "0")) == "InvalidSignatureException"
    request = workshop.request("failing", "0", RoleArn=workshop.role.replace("arn:aws:", "arn:aws-cn:"))
    assert refusal(workshop.sagemaker.create_training_job, **request) == "ValidationException"


def test_a_target_or_a_policy_of_another_partition_or_region_is_refused(workshop: Workshop) -> None:
    events, rule = workshop.cloud.client("events"), workshop.name("rule")
    events.put_rule(Name=rule, EventPattern='{"source": ["any"]}')
    for place in ("arn:aws-cn:lambda:us-east-1:123456789012", "arn:aws:lambda:eu-west-1:123456789012"):
        arn = f"{place}:function:any"
        assert refusal(events.put_targets, Rule=rule, Targets=[{"Id": "one", "Arn": arn}]) == "ValidationException"
        schedule = {
            "Name": workshop.name("schedule"),
            "ScheduleExpression": "at(2099-01-01T00:00:00)",
            "FlexibleTimeWindow": {"Mode": "OFF"},
            "Target": {"Arn": arn, "RoleArn": workshop.role},
        }
        assert refusal(workshop.cloud.client("scheduler").create_schedule, **schedule) == "ValidationException"
    foreign = {"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws-cn:s3:::bucket/*"}
    assert refusal(workshop.make_role, statements=[foreign]) == "MalformedPolicyDocument"
