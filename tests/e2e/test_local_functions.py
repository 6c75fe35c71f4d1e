"""Functions on the embedded cloud: asynchronous invocations are tried again, and an update lets them finish."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.config import Config

from tests.support.waiting import wait_until
from tests.support.workshop import Workshop

_SERVICES = ["lambda.amazonaws.com", "states.amazonaws.com"]
_TRUST = {"Effect": "Allow", "Principal": {"Service": _SERVICES}, "Action": "sts:AssumeRole"}
# Writes an object for each attempt, then fails.
_FAILING = """
import boto3, uuid
def handler(event, context):
    boto3.client("s3").put_object(Bucket="{bucket}", Key="{folder}/" + uuid.uuid4().hex)
    raise RuntimeError("broken")
"""


def archive(source: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as bundle:
        bundle.writestr("index.py", source)
    return packed.getvalue()


def make_function(workshop: Workshop, source: str, **changes: Any) -> tuple[str, str]:
    """Name and ARN."""
    role = workshop.make_role([{"Effect": "Allow", "Action": "*", "Resource": "*"}], _TRUST)
    made = workshop.cloud.client("lambda").create_function(
        FunctionName=workshop.name("function"),
        Runtime="python3.13",
        Handler="index.handler",
        Role=role,
        Code={"ZipFile": archive(source)},
        Timeout=60,
        **changes,
    )
    return str(made["FunctionName"]), str(made["FunctionArn"])


def by_hand(workshop: Workshop, arn: str) -> None:
    workshop.cloud.client("lambda").invoke(FunctionName=arn, InvocationType="Event", Payload=b'{"detail": {"n": 1}}')


def by_rule(workshop: Workshop, arn: str) -> None:
    events, rule = workshop.cloud.client("events"), workshop.name("rule")
    events.put_rule(Name=rule, EventPattern=json.dumps({"source": [rule]}))
    events.put_targets(Rule=rule, Targets=[{"Id": "function", "Arn": arn}])
    events.put_events(Entries=[{"Source": rule, "DetailType": "any", "Detail": '{"n": 1}'}])


def by_topic(workshop: Workshop, arn: str) -> None:
    sns = workshop.cloud.client("sns")
    topic = sns.create_topic(Name=workshop.name("topic"))["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="lambda", Endpoint=arn)
    sns.publish(TopicArn=topic, Message='{"n": 1}')


@pytest.mark.parametrize("invoke", [by_hand, by_rule, by_topic], ids=lambda call: call.__name__)
def test_an_asynchronous_invocation_is_tried_three_times_and_then_a_dead_letter(
    workshop: Workshop, invoke: Callable[[Workshop, str], None]
) -> None:
    sqs, folder = workshop.cloud.client("sqs"), workshop.name("attempts")
    queue = sqs.create_queue(QueueName=workshop.name("dead"))["QueueUrl"]
    [target] = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"].values()
    source = _FAILING.format(bucket=workshop.bucket, folder=folder)
    _, arn = make_function(workshop, source, DeadLetterConfig={"TargetArn": target})
    invoke(workshop, arn)
    [letter] = wait_until(
        "the dead letter",
        lambda: sqs.receive_message(QueueUrl=queue, MessageAttributeNames=["All"]).get("Messages"),
    )
    # The event as the function got it, and nothing that names the function.
    event = json.loads(letter["Body"])
    assert event.get("detail") == {"n": 1} or event["Records"][0]["Sns"]["Message"] == '{"n": 1}'
    values = {name: value["StringValue"] for name, value in letter["MessageAttributes"].items()}
    assert values.keys() == {"RequestID", "ErrorCode", "ErrorMessage"}
    assert (values["ErrorCode"], values["ErrorMessage"]) == ("200", "broken")
    assert len(workshop.keys(f"{folder}/")) == 3


# Says which code runs, and waits until the test opens the gate.
_GATED = """
import boto3, time
s3 = boto3.client("s3")
def handler(event, context):
    s3.put_object(Bucket="{bucket}", Key="{folder}/started-{version}")
    while event.get("wait") and "Contents" not in s3.list_objects_v2(Bucket="{bucket}", Prefix="{folder}/gate"):
        time.sleep(0.05)
    return "{version}"
"""


def test_a_function_that_runs_finishes_with_its_code_when_it_is_updated(workshop: Workshop) -> None:
    folder = workshop.name("update")

    def source(version: str) -> str:
        return _GATED.format(bucket=workshop.bucket, folder=folder, version=version)

    name, _ = make_function(workshop, source("old"))
    patient = workshop.cloud.client("lambda", config=Config(read_timeout=120, retries={"total_max_attempts": 1}))

    def invoked(**event: bool) -> Any:
        return json.loads(patient.invoke(FunctionName=name, Payload=json.dumps(event))["Payload"].read())

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(invoked, wait=True)
        wait_until("the old code", lambda: workshop.keys(f"{folder}/started-old"))
        patient.update_function_code(FunctionName=name, ZipFile=archive(source("new")))
        patient.update_function_configuration(FunctionName=name, Environment={"Variables": {"A": "b"}})
        assert invoked() == "new"
        workshop.s3.put_object(Bucket=workshop.bucket, Key=f"{folder}/gate", Body=b"")
        assert running.result() == "old"


def test_an_execution_that_runs_keeps_its_definition_when_the_machine_is_updated(workshop: Workshop) -> None:
    stepfunctions, sqs = workshop.cloud.client("stepfunctions"), workshop.cloud.client("sqs")
    queue = sqs.create_queue(QueueName=workshop.name("tokens"))["QueueUrl"]
    role = workshop.make_role([{"Effect": "Allow", "Action": "*", "Resource": "*"}], _TRUST)

    def definition(version: str) -> str:
        wait = {
            "Type": "Task",
            "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
            "Parameters": {"QueueUrl": queue, "MessageBody": {"token.$": "$$.Task.Token"}},
            "Next": "Version",
        }
        return json.dumps(
            {"StartAt": "Wait", "States": {"Wait": wait, "Version": {"Type": "Pass", "Result": version, "End": True}}}
        )

    machine = stepfunctions.create_state_machine(
        name=workshop.name("machine"), definition=definition("old"), roleArn=role
    )["stateMachineArn"]

    def start() -> tuple[str, str]:
        execution = stepfunctions.start_execution(stateMachineArn=machine)["executionArn"]
        [message] = wait_until("the token", lambda: sqs.receive_message(QueueUrl=queue).get("Messages"))
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return execution, json.loads(message["Body"])["token"]

    def output(execution: str, token: str) -> Any:
        stepfunctions.send_task_success(taskToken=token, output="{}")
        return wait_until("the end", lambda: stepfunctions.describe_execution(executionArn=execution).get("output"))

    first = start()
    stepfunctions.update_state_machine(stateMachineArn=machine, definition=definition("new"))
    second = start()
    assert (output(*first), output(*second)) == ('"old"', '"new"')
