"""The AWS in memory where only it can be asked: faults, lost answers, lag."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.memory import AwsError, Fault, MemoryCloud, lost_answer, server_error, throttle

JOB = "muster-one-r0-a1"


@pytest.fixture
def cloud() -> MemoryCloud:
    return MemoryCloud()


def request(name: str = JOB) -> dict[str, Any]:
    return {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/replica",
        "AlgorithmSpecification": {"TrainingImage": "image", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 60},
    }


def code(call: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    return str(caught.value.response["Error"]["Code"])


def test_a_fault_before_the_effect_and_a_lost_answer(cloud: MemoryCloud) -> None:
    create, describe = (getattr(cloud.client("sagemaker"), f"{verb}_training_job") for verb in ("create", "describe"))
    before, lost = server_error("CreateTrainingJob"), lost_answer("CreateTrainingJob")
    cloud.calls.inject(before, lost)
    assert code(create, **request()) == "InternalFailure"
    assert code(describe, TrainingJobName=JOB) == "ValidationException"
    assert code(create, **request()) == "InternalFailure"
    assert describe(TrainingJobName=JOB)["TrainingJobStatus"] == "InProgress"
    assert code(create, **request()) == "ResourceInUse"
    assert (before.fired, lost.fired) == (1, 1)


def test_a_fault_strikes_the_calls_it_is_meant_for(cloud: MemoryCloud) -> None:
    s3 = cloud.client("s3")
    conflict = Fault(
        "Put*",
        AwsError("ConditionalRequestConflict", "again", 409),
        when=lambda call: call.parameters["Key"].startswith("control/"),
        skip=1,
        count=2,
    )
    cloud.calls.inject(conflict)

    def put(key: str) -> int:
        try:
            answer = s3.put_object(Bucket="bucket", Key=key, Body=b"x")
        except ClientError as error:
            answer = error.response
        return int(answer["ResponseMetadata"]["HTTPStatusCode"])

    keys = ["rendezvous/1", "control/1", "control/2", "rendezvous/2", "control/3", "control/4"]
    assert [put(key) for key in keys] == [200, 200, 409, 200, 409, 200]
    assert list(cloud.s3.objects("bucket")) == ["control/1", "control/4", "rendezvous/1", "rendezvous/2"]


def test_another_writer_may_come_in_between(cloud: MemoryCloud) -> None:
    s3 = cloud.client("s3")
    etag = s3.put_object(Bucket="bucket", Key="k", Body=b"old")["ETag"]
    rival = Fault(
        "PutObject",
        when=lambda call: "IfMatch" in call.parameters,
        delay_seconds=7,
        action=lambda: s3.put_object(Bucket="bucket", Key="k", Body=b"rival"),
    )
    cloud.calls.inject(rival)
    assert code(s3.put_object, Bucket="bucket", Key="k", Body=b"mine", IfMatch=etag) == "PreconditionFailed"
    assert cloud.s3.objects("bucket")["k"].body == b"rival"
    assert cloud.clock.monotonic() == 7


def test_a_client_with_tries_waits_and_sends_again() -> None:
    cloud = MemoryCloud(tries=6)
    create = cloud.client("sagemaker").create_training_job
    cloud.calls.inject(throttle("CreateTrainingJob", count=2), lost_answer("CreateTrainingJob"))
    # The answer to the third try was lost: the fourth meets its own job.
    assert code(create, **request()) == "ResourceInUse"
    assert cloud.calls.counts()["CreateTrainingJob"] == 4
    assert 0 < cloud.clock.monotonic() < 1 + 2 + 4
    cloud.calls.reset()
    cloud.calls.inject(throttle("CreateTrainingJob", count=None))
    assert code(create, **request("other")) == "ThrottlingException"
    assert cloud.calls.counts() == {"CreateTrainingJob": 6}


def test_a_listing_may_lag_behind_a_creation(cloud: MemoryCloud) -> None:
    sagemaker, workflow = cloud.client("sagemaker"), cloud.client("stepfunctions")
    cloud.training.list_lag_seconds = cloud.workflow.list_lag_seconds = 10
    sagemaker.create_training_job(**request())
    workflow.start_execution(stateMachineArn=cloud.workflow.machine_arn, name="one")

    def listed() -> tuple[int, int]:
        executions = workflow.list_executions(stateMachineArn=cloud.workflow.machine_arn)["executions"]
        return len(sagemaker.list_training_jobs()["TrainingJobSummaries"]), len(executions)

    assert listed() == (0, 0)
    assert sagemaker.describe_training_job(TrainingJobName=JOB)
    cloud.clock.advance(10)
    assert listed() == (1, 1)
