"""The AWS in memory where only it can be asked: virtual time, faults, lost answers, lag, events in disorder."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from muster.control.runtime import clock as control_clock
from tests.memory import AwsError, Fault, MemoryCloud, VirtualClock, lost_answer, server_error, throttle
from tests.memory.clock import START

JOB = "muster-one-r0-a1"


class ProcessEndedError(BaseException):
    """The function's process is gone: no code of it runs any more."""


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


# --- time -----------------------------------------------------------------------------------------


def test_what_is_due_happens_in_order_each_at_its_time() -> None:
    clock, fired = VirtualClock(), []

    def note(name: str) -> None:
        fired.append((name, clock.monotonic()))

    clock.after(20, lambda: note("second"))
    clock.after(10, lambda: note("first"))
    clock.after(10, lambda: clock.after(5, lambda: note("made at 10")))
    clock.after(31, lambda: note("later"))
    clock.advance(30)
    assert fired == [("first", 10), ("made at 10", 15), ("second", 20)]
    assert clock.now() == START + timedelta(seconds=30)
    clock.sleep(1)
    assert fired[-1] == ("later", 31)


def test_an_action_may_let_time_pass_and_time_never_goes_back() -> None:
    clock, fired = VirtualClock(), []
    clock.after(1, lambda: clock.sleep(100))
    clock.after(2, lambda: fired.append(clock.monotonic()))
    clock.advance(3)
    assert (fired, clock.monotonic()) == ([2], 101)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)


def test_an_action_may_wait_for_threads_that_sleep() -> None:
    clock = VirtualClock()

    def work() -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(clock.sleep, [5.0] * 4))

    clock.after(1, work)
    clock.advance(2)
    assert 6 <= clock.monotonic() <= 21


def test_the_control_plane_reads_virtual_time_while_it_is_installed() -> None:
    clock = VirtualClock(datetime(2031, 5, 6, tzinfo=UTC))
    with clock.install():
        clock.advance(1.5)
        then = control_clock.now()
        assert then == "2031-05-06T00:00:01.500Z"
        clock.advance(60)
        assert control_clock.seconds_since(then) == 60
    assert not control_clock.now().startswith("2031")


def test_a_stopped_job_ends_while_its_stopper_sleeps(cloud: MemoryCloud) -> None:
    sagemaker = cloud.client("sagemaker")
    sagemaker.create_training_job(**request())
    cloud.training.train(JOB)
    sagemaker.stop_training_job(TrainingJobName=JOB)
    cloud.clock.sleep(119)
    assert cloud.training.status(JOB) == ("Stopping", "Stopping")
    cloud.clock.sleep(1)
    assert cloud.training.status(JOB) == ("Stopped", "Stopped")


# --- faults ---------------------------------------------------------------------------------------


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


def test_the_end_of_a_process_and_a_lost_connection_are_no_answers(cloud: MemoryCloud) -> None:
    s3 = cloud.client("s3")
    cloud.calls.inject(
        Fault("PutObject", ProcessEndedError(), after_effect=True),
        Fault("GetObject", EndpointConnectionError(endpoint_url="https://s3")),
    )
    with pytest.raises(ProcessEndedError):
        s3.put_object(Bucket="bucket", Key="k", Body=b"x")
    with pytest.raises(EndpointConnectionError):
        s3.get_object(Bucket="bucket", Key="k")
    assert s3.get_object(Bucket="bucket", Key="k")["Body"].read() == b"x"


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


def test_each_service_throttles_in_its_own_way(cloud: MemoryCloud) -> None:
    cloud.calls.inject(throttle("*", count=None))

    def refused(service: str, operation: str, **parameters: Any) -> tuple[str, int]:
        with pytest.raises(ClientError) as caught:
            getattr(cloud.client(service), operation)(**parameters)
        answer: Any = caught.value.response
        return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]

    assert refused("s3", "get_object", Bucket="bucket", Key="k") == ("SlowDown", 503)
    assert refused("sagemaker", "stop_training_job", TrainingJobName=JOB) == ("ThrottlingException", 400)
    assert refused("sns", "publish", TopicArn="arn", Message="m") == ("Throttled", 429)


def test_what_does_not_pass_is_not_tried_again() -> None:
    cloud = MemoryCloud(tries=6)
    quota = Fault("CreateTrainingJob", AwsError("ResourceLimitExceeded", "0 instances"))
    cloud.calls.inject(quota)
    assert code(cloud.client("sagemaker").create_training_job, **request()) == "ResourceLimitExceeded"
    assert cloud.calls.counts() == {"CreateTrainingJob": 1}


def test_the_log_has_what_was_asked_when(cloud: MemoryCloud) -> None:
    s3 = cloud.client("s3")
    cloud.clock.advance(5)
    s3.put_object(Bucket="bucket", Key="k", Body=b"x", IfNoneMatch="*")
    code(s3.put_object, Bucket="bucket", Key="k", Body=b"y", IfNoneMatch="*")
    assert [body["Body"] for body in cloud.calls.of("PutObject")] == [b"x", b"y"]
    assert {(call.service, call.at) for call in cloud.calls.log} == {("s3", START + timedelta(seconds=5))}


def test_what_this_aws_lacks_is_no_silent_success(cloud: MemoryCloud) -> None:
    with pytest.raises(NotImplementedError, match="VersionId"):
        cloud.client("s3").get_object(Bucket="bucket", Key="k", VersionId="v")
    with pytest.raises(AttributeError, match="no copy_object"):
        cloud.client("s3").copy_object(Bucket="bucket", Key="k", CopySource="bucket/k")


def test_an_answer_that_aws_could_not_give_is_found(cloud: MemoryCloud) -> None:
    cloud.client("sagemaker").create_training_job(**request())
    cloud.training.advance(JOB, "Thinking")
    with pytest.raises(AssertionError, match="SecondaryStatus is 'Thinking', not one of"):
        cloud.client("sagemaker").describe_training_job(TrainingJobName=JOB)


def test_threads_share_one_bucket(cloud: MemoryCloud) -> None:
    s3 = cloud.client("s3")
    s3.put_object(Bucket="bucket", Key="count", Body=b"0")

    def add_one(_: int) -> None:
        while True:
            found = s3.get_object(Bucket="bucket", Key="count")
            body = b"%d" % (int(found["Body"].read()) + 1)
            try:
                s3.put_object(Bucket="bucket", Key="count", Body=body, IfMatch=found["ETag"])
            except ClientError:
                continue
            return

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add_one, range(64)))
    assert cloud.s3.objects("bucket")["count"].body == b"64"


# --- jobs and events ------------------------------------------------------------------------------


def secondaries(cloud: MemoryCloud) -> list[str]:
    return [event["detail"]["SecondaryStatus"] for event in cloud.notifications.drain()]


def test_a_job_on_spot_is_interrupted_and_trains_on(cloud: MemoryCloud) -> None:
    cloud.client("sagemaker").create_training_job(**request())
    cloud.training.train(JOB)
    cloud.training.interrupt(JOB)
    cloud.training.train(JOB)
    cloud.clock.advance(100)
    cloud.training.set_billable_seconds(JOB, 30)
    cloud.training.complete(JOB)
    phases = ["Downloading", "Training"]
    assert secondaries(cloud) == ["Starting", *phases, "Interrupted", "Restarting", *phases, "Uploading", "Completed"]
    shown = cloud.client("sagemaker").describe_training_job(TrainingJobName=JOB)
    assert (shown["BillableTimeInSeconds"], shown["TrainingTimeInSeconds"]) == (30, 100)


def test_a_job_ends_as_the_test_says(cloud: MemoryCloud) -> None:
    sagemaker = cloud.client("sagemaker")
    for name in ("no-instance", "too-long", "late-stop"):
        sagemaker.create_training_job(**request(name))
    cloud.training.fail("no-instance", "CapacityError: " + "x" * 2_000)
    shown = sagemaker.describe_training_job(TrainingJobName="no-instance")
    assert (len(shown["FailureReason"]), "BillableTimeInSeconds" in shown) == (1_024, False)
    cloud.training.train("too-long")
    cloud.training.end_stopped("too-long", "MaxRuntimeExceeded")
    assert cloud.training.status("too-long") == ("Stopped", "MaxRuntimeExceeded")
    cloud.training.stop_by_user("late-stop")
    cloud.training.complete("late-stop")
    assert cloud.training.status("late-stop") == ("Stopped", "Stopped")
    # Its time to stop passes, and nothing happens to it any more.
    ended = len(cloud.notifications.pending)
    cloud.clock.advance(200)
    assert len(cloud.notifications.pending) == ended
    with pytest.raises(AssertionError, match="has ended as Stopped"):
        cloud.training.complete("too-long")
    assert cloud.training.names("Failed") == ["no-instance"]


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


def test_events_are_lost_doubled_and_disordered_at_will(cloud: MemoryCloud) -> None:
    cloud.client("sagemaker").create_training_job(**request())
    cloud.training.complete(JOB)
    cloud.notifications.drop(0)
    cloud.notifications.duplicate(-1)
    assert cloud.notifications.take(1)["detail"]["SecondaryStatus"] == "Training"
    assert [event["detail"]["SecondaryStatus"] for event in cloud.notifications.pending] == [
        *("Downloading", "Uploading", "Completed", "Completed")
    ]
    first, second = cloud.notifications.pending[-2:]
    assert first == second
    cloud.notifications.shuffle(random.Random(1))  # noqa: S311 - not for secrets
    assert sorted(secondaries(cloud)) == ["Completed", "Completed", "Downloading", "Uploading"]
    assert cloud.notifications.drain() == []


def test_what_was_answered_or_sent_does_not_change_with_its_reader(cloud: MemoryCloud) -> None:
    sagemaker, asked = cloud.client("sagemaker"), request()
    sagemaker.create_training_job(**asked)
    asked["AlgorithmSpecification"]["TrainingImage"] = "changed"
    sagemaker.describe_training_job(TrainingJobName=JOB)["AlgorithmSpecification"]["TrainingImage"] = "changed"
    cloud.notifications.pending[0]["detail"]["AlgorithmSpecification"]["TrainingImage"] = "changed"
    shown = sagemaker.describe_training_job(TrainingJobName=JOB)
    [sent] = cloud.calls.of("CreateTrainingJob")
    assert shown["AlgorithmSpecification"]["TrainingImage"] == "image"
    assert sent["AlgorithmSpecification"]["TrainingImage"] == "image"


def test_two_clouds_of_one_seed_are_the_same() -> None:
    def identifiers(seed: int) -> list[str]:
        cloud = MemoryCloud(seed=seed)
        cloud.client("sagemaker").create_training_job(**request())
        cloud.training.complete(JOB)
        return [event["id"] for event in cloud.notifications.drain()]

    assert identifiers(1) == identifiers(1) != identifiers(2)


# --- the others -----------------------------------------------------------------------------------


def test_an_entry_that_the_bus_does_not_take_is_not_remembered(cloud: MemoryCloud) -> None:
    entry = {"Source": "muster", "DetailType": "Run Started", "Detail": '{"run": "one"}', "EventBusName": "bus"}
    cloud.events.refuse_next = 1
    put = cloud.client("events").put_events
    assert put(Entries=[entry])["FailedEntryCount"] == 1
    assert put(Entries=[entry])["FailedEntryCount"] == 0
    [taken] = cloud.events.entries
    assert (taken.bus, taken.source, taken.at) == ("bus", "muster", START)
    assert cloud.events.of("Run Started") == [{"run": "one"}]


def test_an_execution_that_was_too_slow(cloud: MemoryCloud) -> None:
    client = cloud.client("stepfunctions")
    client.start_execution(stateMachineArn=cloud.workflow.machine_arn, name="one")
    cloud.workflow.fail("one", "States.Timeout", status="TIMED_OUT")
    shown = client.describe_execution(executionArn=cloud.workflow.execution_arn("one"))
    assert (shown["status"], shown["error"], shown["redriveStatus"]) == ("TIMED_OUT", "States.Timeout", "REDRIVABLE")
    last = cloud.notifications.drain()[-1]
    assert (last["detail"]["status"], last["detail"]["error"]) == ("TIMED_OUT", "States.Timeout")


def test_messages_are_remembered(cloud: MemoryCloud) -> None:
    cloud.client("sns").publish(TopicArn="arn:aws:sns:us-east-1:123456789012:people", Subject="s", Message="m")
    [message] = cloud.sns.messages
    assert (message.subject, message.text) == ("s", "m")
