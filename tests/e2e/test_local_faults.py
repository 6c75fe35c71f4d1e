"""Faults on demand: each one fires where it was asked for, is counted, and then is spent."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from muster.local.faults import (
    CallError,
    EventFault,
    LostInstance,
    SmallVolume,
    SpotInterruption,
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


def test_an_interrupted_job_waits_no_longer_than_it_may(workshop: Workshop, faults: Any) -> None:
    request = workshop.request("counter")
    faults.add(SpotInterruption(job=request["TrainingJobName"], wait_seconds=60))
    limits = {"MaxRuntimeInSeconds": 1, "MaxWaitTimeInSeconds": 1}
    workshop.sagemaker.create_training_job(**request | SPOT | {"StoppingCondition": limits})
    shown = workshop.end(request["TrainingJobName"])
    assert (shown["TrainingJobStatus"], shown["SecondaryStatus"]) == ("Stopped", "MaxWaitTimeExceeded")


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
    assert workshop.end(job)["FailureReason"].startswith("InternalServerError: ")
    assert workshop.keys(f"output/{job}/") == []
    with pytest.raises(TimeoutError, match="fired 1 times"):
        first.wait(fired=2, timeout_seconds=0.1)


def test_a_lost_answer_leaves_the_effect(workshop: Workshop, faults: Any) -> None:
    client = workshop.cloud.client("sagemaker", config=ONCE)
    for disconnect, error in ((False, ClientError), (True, BotoCoreError)):
        request = workshop.request("failing", "0")
        name = request["TrainingJobName"]
        lost = CallError(operation="CreateTrainingJob", resource=name, after_effect=True, disconnect=disconnect)
        fault = faults.add(lost)
        with pytest.raises(error):
            client.create_training_job(**request)
        assert fault.fired == 1
        assert workshop.end(name)["TrainingJobStatus"] == "Completed"
        with pytest.raises(client.exceptions.ResourceInUse):
            client.create_training_job(**request)


def test_every_protocol_understands_its_error(workshop: Workshop, faults: Any) -> None:
    for service, operation, call in (
        ("s3", "ListBuckets", "list_buckets"),
        ("sagemaker", "ListTrainingJobs", "list_training_jobs"),
        ("states", "ListStateMachines", "list_state_machines"),
        ("lambda", "ListFunctions", "list_functions"),
        ("events", "ListRules", "list_rules"),
        ("iam", "ListRoles", "list_roles"),
        ("logs", "DescribeLogGroups", "describe_log_groups"),
    ):
        client = workshop.cloud.client({"states": "stepfunctions"}.get(service, service), config=ONCE)
        fault = {"service": service, "operation": operation, "caller": "root"}
        faults.add(CallError(**fault, code="ServiceUnavailable", message="later", status=503))
        with pytest.raises(ClientError) as caught:
            getattr(client, call)()
        error = caught.value.response["Error"]
        assert (error["Code"], error["Message"]) == ("ServiceUnavailable", "later"), service
        getattr(client, call)()


# --- events ---------------------------------------------------------------------------------------


Take = Callable[[str, int], list[str]]


@pytest.fixture
def take(workshop: Workshop) -> Iterator[Take]:
    """The events of a job, by way of a rule and a queue, once there are so many."""
    sqs, events = workshop.cloud.client("sqs"), workshop.cloud.client("events")
    url = sqs.create_queue(QueueName=workshop.name("queue"))["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    rule = workshop.name("rule")
    pattern = {"source": ["aws.sagemaker"], "detail-type": ["SageMaker Training Job State Change"]}
    events.put_rule(Name=rule, EventPattern=json.dumps(pattern))
    events.put_targets(Rule=rule, Targets=[{"Id": "queue", "Arn": arn}])
    told: defaultdict[str, list[str]] = defaultdict(list)
    request = {"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1}

    def take(job: str, count: int) -> list[str]:
        def enough() -> bool:
            for message in sqs.receive_message(**request).get("Messages", []):
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
                detail = json.loads(message["Body"])["detail"]
                told[detail["TrainingJobName"]].append(detail["SecondaryStatus"])
            return len(told[job]) >= count

        wait_until(f"{count} events of {job}", enough)
        return told[job]

    yield take
    events.remove_targets(Rule=rule, Ids=["queue"])
    events.delete_rule(Name=rule)


def start_with(workshop: Workshop, faults: Any, fault: EventFault) -> str:
    """A job that completes, and whose events this befalls; its name."""
    request = workshop.request("failing", "0")
    job = str(request["TrainingJobName"])
    faults.add(fault.model_copy(update={"job": job}))
    workshop.sagemaker.create_training_job(**request)
    return job


def test_an_event_can_be_lost_repeated_or_out_of_order(workshop: Workshop, faults: Any, take: Take) -> None:
    begin, whole = ["Starting", "Downloading"], ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    told = {}
    for fault, expected in (
        (EventFault(action="drop", status="Uploading"), [*begin, "Training", "Completed"]),
        (EventFault(action="duplicate", status="Completed", copies=3), [*whole, "Completed", "Completed"]),
        (EventFault(action="reorder", status="Uploading", seconds=30), [*begin, "Training", "Completed", "Uploading"]),
        (EventFault(action="delay", status="Training", seconds=1), [*begin, "Uploading", "Completed", "Training"]),
        # The last event is held back for a successor, and goes out in the end.
        (EventFault(action="reorder", status="Completed", seconds=0.3), whole),
    ):
        told[start_with(workshop, faults, fault)] = expected
    seen = {job: take(job, len(expected)) for job, expected in told.items()}
    assert seen == told


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


def test_a_volume_has_a_size(workshop: Workshop, faults: Any) -> None:
    reasons = {}
    for kind, program, reason in (
        ("ml.m5.large", fill(300, stay=True), "AlgorithmError: OSError: [Errno 28] No space left on device"),
        ("ml.m5.large", fill(300, stay=False), "ClientError: Artifact upload failed:Insufficient disk space"),
        ("ml.m5.large", fill(100, stay=False), ""),
        # It has disks of its own, and the size of the volume does not count.
        ("ml.g5.xlarge", fill(300, stay=False), ""),
    ):
        resources = {"InstanceType": kind, "InstanceCount": 1, "VolumeSizeInGB": 2}
        request = workshop.request("report", ResourceConfig=resources)
        request["AlgorithmSpecification"]["ContainerEntrypoint"] = program
        faults.add(SmallVolume(job=request["TrainingJobName"], gigabyte_bytes=100 << 10))
        workshop.sagemaker.create_training_job(**request)
        reasons[request["TrainingJobName"]] = reason
    found = {job: workshop.end(job).get("FailureReason", "").partition(", exit code")[0] for job in reasons}
    assert found == reasons


def test_inputs_and_checkpoints_must_fit(workshop: Workshop, faults: Any) -> None:
    workshop.s3.put_object(Bucket=workshop.bucket, Key="much/checkpoint", Body=bytes(300 << 10))
    config = {"S3Uri": f"s3://{workshop.bucket}/much/"}
    request = workshop.request("counter", CheckpointConfig=config)
    fault = faults.add(SmallVolume(job=request["TrainingJobName"], gigabyte_bytes=100 << 10))
    workshop.sagemaker.create_training_job(**request)
    shown = workshop.end(request["TrainingJobName"])
    assert shown["FailureReason"] == "ClientError: Data download failed:Insufficient disk space"
    assert fault.fired == 1
