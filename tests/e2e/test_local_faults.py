"""Faults on demand: each one fires where it was asked for, is counted, and then is spent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from muster.local.faults import (
    CallError,
    CapacityError,
    Crash,
    EventFault,
    LostInstance,
    QuotaError,
    RateLimit,
    SlowStart,
    SmallVolume,
    SpotInterruption,
    throttled,
)
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, statuses

ONCE = Config(retries={"total_max_attempts": 1})
SPOT = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 120},
}


def checkpoints(workshop: Workshop) -> dict[str, str]:
    return {"S3Uri": f"s3://{workshop.bucket}/checkpoints/{workshop.name()}"}


def code_of(caught: pytest.ExceptionInfo[ClientError]) -> str:
    return str(caught.value.response["Error"]["Code"])


def test_a_spot_interruption_goes_on_in_a_new_process_with_the_checkpoints(workshop: Workshop, faults: Any) -> None:
    place = checkpoints(workshop)
    job = workshop.start("counter", "2", CheckpointConfig=place, **SPOT)
    workshop.until_logged(job, "count=1")
    fault = faults.add(SpotInterruption(job=job))
    shown = workshop.end(job)
    assert fault.fired == 1
    assert shown["TrainingJobStatus"] == "Completed"
    assert statuses(shown) == [
        *("Starting", "Downloading", "Training", "Interrupted"),
        *("Restarting", "Downloading", "Training", "Uploading", "Completed"),
    ]
    # A log stream for each process; the first one was stopped.
    assert workshop.log(job) == [["count=1"], ["count=2"]]
    assert any(key.endswith("goodbye-1") for key in workshop.keys(place["S3Uri"].split("/", 3)[3]))
    assert shown["BillableTimeInSeconds"] <= shown["TrainingTimeInSeconds"]


def test_a_job_that_is_not_on_spot_is_not_interrupted(workshop: Workshop, faults: Any) -> None:
    job = workshop.start("counter")
    fault = faults.add(SpotInterruption(job=job))
    workshop.until_logged(job, "count=1")
    workshop.sagemaker.stop_training_job(TrainingJobName=job)
    assert "Interrupted" not in statuses(workshop.end(job))
    assert fault.fired == 0


def test_an_interrupted_job_waits_no_longer_than_it_may(workshop: Workshop, faults: Any) -> None:
    request = workshop.request("counter")
    faults.add(SpotInterruption(job=request["TrainingJobName"], wait_seconds=60))
    limits = {"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1}
    workshop.sagemaker.create_training_job(**request | SPOT | {"StoppingCondition": limits})
    shown = workshop.end(request["TrainingJobName"])
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")


def test_a_lost_instance_fails_the_job_as_an_internal_error(workshop: Workshop, faults: Any) -> None:
    job = workshop.start("counter", CheckpointConfig=checkpoints(workshop))
    workshop.until_logged(job, "count=1")
    fault = faults.add(LostInstance(job=job))
    shown = workshop.end(job)
    assert fault.fired == 1
    assert shown["TrainingJobStatus"] == "Failed"
    assert shown["FailureReason"] == "InternalServerError: We encountered an internal error. Please try again."
    assert workshop.keys(f"output/{job}/") == []


def test_a_lost_instance_restarts_within_the_job_while_attempts_remain(workshop: Workshop, faults: Any) -> None:
    retry = {"MaximumRetryAttempts": 1}
    job = workshop.start("counter", CheckpointConfig=checkpoints(workshop), RetryStrategy=retry)
    wait_until("a checkpoint", lambda: workshop.keys("checkpoints/"))
    workshop.until_logged(job, "count=1")
    first = faults.add(LostInstance(job=job))
    first.wait()
    wait_until("the log of both attempts", lambda: len(workshop.log(job)) == 2)
    assert "Restarting" in statuses(workshop.describe(job))
    faults.add(LostInstance(job=job))
    assert workshop.end(job)["FailureReason"].startswith("InternalServerError")


def test_a_crash_is_the_users_failure(workshop: Workshop, faults: Any) -> None:
    job = workshop.start("counter")
    faults.add(Crash(job=job, exit_code=139))
    shown = workshop.end(job)
    assert (shown["TrainingJobStatus"], shown["FailureReason"]) == ("Failed", "AlgorithmError: , exit code: 139")


def test_no_capacity_fails_the_job_before_it_trains(workshop: Workshop, faults: Any) -> None:
    request = workshop.request("report")
    faults.add(CapacityError(job=request["TrainingJobName"]))
    workshop.sagemaker.create_training_job(**request)
    shown = workshop.end(request["TrainingJobName"])
    assert statuses(shown) == ["Starting", "Failed"]
    assert shown["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute capacity.")


def test_a_fault_fires_only_its_jobs_and_only_as_often_as_asked(workshop: Workshop, faults: Any) -> None:
    stem = workshop.name("glob")
    fault = faults.add(CapacityError(job=f"{stem}-hit-*", count=2))
    names = [f"{stem}-hit-1", f"{stem}-miss", f"{stem}-hit-2", f"{stem}-hit-3"]
    for name in names:
        workshop.start("failing", "0", TrainingJobName=name)
    ended = {name: workshop.end(name)["TrainingJobStatus"] for name in names}
    assert ended[f"{stem}-miss"] == "Completed"
    assert sorted(ended.values()) == ["Completed", "Completed", "Failed", "Failed"]
    assert fault.fired == 2


def test_no_quota_refuses_the_call_and_leaves_the_name_free(workshop: Workshop, faults: Any) -> None:
    request = workshop.request("failing", "0")
    fault = faults.add(QuotaError(job=request["TrainingJobName"]))
    with pytest.raises(workshop.sagemaker.exceptions.ResourceLimitExceeded) as caught:
        workshop.sagemaker.create_training_job(**request)
    assert "ml.m5.large for training job usage" in str(caught.value)
    workshop.sagemaker.create_training_job(**request)
    assert workshop.end(request["TrainingJobName"])["TrainingJobStatus"] == "Completed"
    assert fault.fired == 1


def test_a_slow_start_keeps_the_job_in_starting(workshop: Workshop, faults: Any) -> None:
    request = workshop.request("failing", "0")
    faults.add(SlowStart(job=request["TrainingJobName"], seconds=0.5))
    workshop.sagemaker.create_training_job(**request)
    starting = workshop.end(request["TrainingJobName"])["SecondaryStatusTransitions"][0]
    assert (starting["EndTime"] - starting["StartTime"]).total_seconds() >= 0.5


def test_the_next_calls_are_throttled_and_no_others(workshop: Workshop, faults: Any) -> None:
    client = workshop.cloud.client("sagemaker", config=ONCE)
    job = workshop.start("failing", "0")
    fault = faults.add(throttled("sagemaker", "DescribeTrainingJob", count=2))
    for _ in range(2):
        with pytest.raises(ClientError) as caught:
            client.describe_training_job(TrainingJobName=job)
        assert code_of(caught) == "ThrottlingException"
    client.list_training_jobs()
    client.describe_training_job(TrainingJobName=job)
    assert fault.fired == 2
    # botocore's own retries get over it.
    faults.add(throttled("sagemaker", "DescribeTrainingJob", count=1))
    assert workshop.describe(job)["TrainingJobName"] == job


def test_calls_above_a_rate_are_throttled(workshop: Workshop, faults: Any) -> None:
    client = workshop.cloud.client("sagemaker", config=ONCE)
    fault = faults.add(RateLimit(operation="ListTrainingJobs", per_second=0.01, burst=3))
    answers = []
    for _ in range(5):
        try:
            client.list_training_jobs()
            answers.append("ok")
        except ClientError as error:
            answers.append(error.response["Error"]["Code"])
    assert answers == ["ok", "ok", "ok", "ThrottlingException", "ThrottlingException"]
    assert fault.fired == 2


@pytest.mark.parametrize("disconnect", [False, True])
def test_a_lost_answer_leaves_the_effect(workshop: Workshop, faults: Any, disconnect: bool) -> None:
    client = workshop.cloud.client("sagemaker", config=ONCE)
    request = workshop.request("failing", "0")
    name = request["TrainingJobName"]
    fault = faults.add(
        CallError(operation="CreateTrainingJob", resource=name, after_effect=True, disconnect=disconnect)
    )
    with pytest.raises((ClientError, BotoCoreError)) as caught:
        client.create_training_job(**request)
    assert isinstance(caught.value, BotoCoreError) == disconnect
    assert fault.fired == 1
    assert workshop.end(name)["TrainingJobStatus"] == "Completed"
    with pytest.raises(client.exceptions.ResourceInUse):
        client.create_training_job(**request)


def test_calls_of_other_services_fail_by_operation_and_resource(workshop: Workshop, faults: Any) -> None:
    client = workshop.cloud.client("s3", config=ONCE)
    throttle = faults.add(
        CallError(
            service="s3",
            operation="PutObject",
            resource=f"{workshop.bucket}/slow/*",
            code="SlowDown",
            message="Please reduce your request rate.",
            status=503,
        )
    )
    client.put_object(Bucket=workshop.bucket, Key="quick/a", Body=b"")
    with pytest.raises(ClientError) as caught:
        client.put_object(Bucket=workshop.bucket, Key="slow/a", Body=b"")
    assert code_of(caught) == "SlowDown"
    assert workshop.keys("slow/") == []
    client.put_object(Bucket=workshop.bucket, Key="slow/a", Body=b"")
    assert throttle.fired == 1
    faults.add(CallError(service="s3", operation="PutObject", resource="*/lost/*", after_effect=True))
    with pytest.raises(ClientError):
        client.put_object(Bucket=workshop.bucket, Key="lost/a", Body=b"kept")
    assert workshop.read("lost/a") == b"kept"


@pytest.mark.parametrize(
    ("service", "operation", "call"),
    [
        ("states", "ListStateMachines", "list_state_machines"),
        ("lambda", "ListFunctions", "list_functions"),
        ("events", "ListRules", "list_rules"),
        ("iam", "ListRoles", "list_roles"),
        ("logs", "DescribeLogGroups", "describe_log_groups"),
    ],
)
def test_every_protocol_understands_its_error(
    workshop: Workshop, faults: Any, service: str, operation: str, call: str
) -> None:
    model = {"states": "stepfunctions"}.get(service, service)
    client = workshop.cloud.client(model, config=ONCE)
    faults.add(CallError(service=service, operation=operation, code="ServiceUnavailable", message="later", status=503))
    with pytest.raises(ClientError) as caught:
        getattr(client, call)()
    assert code_of(caught) == "ServiceUnavailable"
    assert caught.value.response["Error"]["Message"] == "later"
    getattr(client, call)()


# --- events ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def queue(workshop: Workshop) -> Iterator[Any]:
    """State-change events by way of a rule and a queue: a function that takes what arrived since the last call."""
    sqs, events = workshop.cloud.client("sqs"), workshop.cloud.client("events")
    url = sqs.create_queue(QueueName=workshop.name("queue"))["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    rule = workshop.name("rule")
    pattern = {"source": ["aws.sagemaker"], "detail-type": ["SageMaker Training Job State Change"]}
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": arn}])

    def take(job: str, count: int) -> list[dict[str, Any]]:
        """The next events of a job, at least `count`."""
        taken: list[dict[str, Any]] = []

        def enough() -> bool:
            received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            for message in received.get("Messages", []):
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                event = json.loads(message["Body"])
                if event["detail"]["TrainingJobName"] == job:
                    taken.append(event)
            return len(taken) >= count

        wait_until(f"{count} events of {job}", enough)
        return taken

    yield take
    events.remove_targets(Rule=rule, Ids=["queue"])
    events.delete_rule(Name=rule)


def test_every_transition_is_an_event_as_sagemaker_sends_it(workshop: Workshop, queue: Any) -> None:
    shown = workshop.run("failing", "7", "broken", "1", Tags=[{"Key": "run", "Value": "one"}])
    job = shown["TrainingJobName"]
    sent = queue(job, 5)
    assert [event["detail"]["SecondaryStatus"] for event in sent] == statuses(shown)
    first, last = sent[0], sent[-1]
    assert {event["source"] for event in sent} == {"aws.sagemaker"}
    assert last["resources"] == [shown["TrainingJobArn"]]
    assert (last["account"], last["region"]) == ("123456789012", "us-east-1")
    detail = last["detail"]
    assert detail["TrainingJobStatus"] == "Failed"
    assert detail["FailureReason"] == "AlgorithmError: broken, exit code: 7"
    assert detail["Tags"] == [{"Key": "run", "Value": "one"}]
    assert "Environment" not in detail
    assert "FailureReason" not in first["detail"]
    milliseconds = int(shown["CreationTime"].timestamp() * 1000)
    assert abs(detail["CreationTime"] - milliseconds) <= 1
    assert detail["TrainingStartTime"] <= detail["TrainingEndTime"] == detail["LastModifiedTime"]
    assert [entry["Status"] for entry in detail["SecondaryStatusTransitions"]] == statuses(shown)


def told_statuses(events: list[dict[str, Any]]) -> list[str]:
    return [event["detail"]["SecondaryStatus"] for event in events]


def test_an_event_can_be_dropped(workshop: Workshop, faults: Any, queue: Any) -> None:
    request = workshop.request("failing", "0")
    job = request["TrainingJobName"]
    fault = faults.add(EventFault(action="drop", job=job, status="Uploading"))
    workshop.sagemaker.create_training_job(**request)
    workshop.end(job)
    assert told_statuses(queue(job, 4)) == ["Starting", "Downloading", "Training", "Completed"]
    assert fault.fired == 1


def test_an_event_can_come_twice(workshop: Workshop, faults: Any, queue: Any) -> None:
    request = workshop.request("failing", "0")
    job = request["TrainingJobName"]
    faults.add(EventFault(action="duplicate", job=job, status="Completed", copies=3))
    workshop.sagemaker.create_training_job(**request)
    workshop.end(job)
    assert told_statuses(queue(job, 7))[-3:] == ["Completed"] * 3


def test_an_event_can_come_late(workshop: Workshop, faults: Any, queue: Any) -> None:
    request = workshop.request("failing", "0")
    job = request["TrainingJobName"]
    faults.add(EventFault(action="delay", job=job, status="Training", seconds=12))
    workshop.sagemaker.create_training_job(**request)
    workshop.end(job)
    assert told_statuses(queue(job, 4)) == ["Starting", "Downloading", "Uploading", "Completed"]
    assert told_statuses(queue(job, 1)) == ["Training"]


def test_an_event_can_come_after_its_successor(workshop: Workshop, faults: Any, queue: Any) -> None:
    request = workshop.request("failing", "0")
    job = request["TrainingJobName"]
    faults.add(EventFault(action="reorder", job=job, status="Uploading", seconds=30))
    workshop.sagemaker.create_training_job(**request)
    workshop.end(job)
    assert told_statuses(queue(job, 5)) == ["Starting", "Downloading", "Training", "Completed", "Uploading"]


def test_the_last_event_held_back_for_a_successor_goes_out_in_the_end(
    workshop: Workshop, faults: Any, queue: Any
) -> None:
    request = workshop.request("failing", "0")
    job = request["TrainingJobName"]
    faults.add(EventFault(action="reorder", job=job, status="Completed", seconds=0.3))
    workshop.sagemaker.create_training_job(**request)
    workshop.end(job)
    assert told_statuses(queue(job, 5))[-1] == "Completed"


def fill(kilobytes: int, *, stay: bool) -> list[str]:
    """A program that fills the volume, and stays, or ends before anybody looks: the file appears as a whole."""
    statements = [
        "import os, pathlib, time",
        "volume = pathlib.Path(os.environ['SAGEMAKER_BASE_DIR'])",
        "written = volume.parent / 'big'",
        f"written.write_bytes(bytes({kilobytes} << 10))",
        "written.rename(volume / 'model' / 'big')",
        "time.sleep(600)" if stay else "os._exit(0)",
    ]
    return ["python", "-c", "; ".join(statements)]


@pytest.mark.parametrize(
    ("kind", "program", "reason"),
    [
        (
            "ml.m5.large",
            fill(300, stay=True),
            "AlgorithmError: OSError: [Errno 28] No space left on device, exit code: 1",
        ),
        ("ml.m5.large", fill(300, stay=False), "ClientError: Artifact upload failed:Insufficient disk space"),
        ("ml.m5.large", fill(100, stay=False), None),
        # It has disks of its own, and the size of the volume does not count.
        ("ml.g5.xlarge", fill(300, stay=False), None),
    ],
)
def test_a_volume_has_a_size(
    workshop: Workshop, faults: Any, kind: str, program: list[str], reason: str | None
) -> None:
    resources = {"InstanceType": kind, "InstanceCount": 1, "VolumeSizeInGB": 2}
    request = workshop.request("report", ResourceConfig=resources)
    request["AlgorithmSpecification"]["ContainerEntrypoint"] = program
    faults.add(SmallVolume(job=request["TrainingJobName"], gigabyte_bytes=100 << 10))
    workshop.sagemaker.create_training_job(**request)
    assert workshop.end(request["TrainingJobName"]).get("FailureReason") == reason


def test_inputs_and_checkpoints_must_fit(workshop: Workshop, faults: Any) -> None:
    workshop.s3.put_object(Bucket=workshop.bucket, Key="much/checkpoint", Body=bytes(300 << 10))
    config = {"S3Uri": f"s3://{workshop.bucket}/much/"}
    request = workshop.request("counter", CheckpointConfig=config)
    fault = faults.add(SmallVolume(job=request["TrainingJobName"], gigabyte_bytes=100 << 10))
    workshop.sagemaker.create_training_job(**request)
    shown = workshop.end(request["TrainingJobName"])
    assert shown["FailureReason"] == "ClientError: Data download failed:Insufficient disk space"
    assert fault.fired == 1
