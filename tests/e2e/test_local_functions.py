"""Functions on the embedded cloud: retries, updates, failures, and what a function sees."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from botocore.config import Config

from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, packed


def test_a_function_reaches_the_cloud_as_its_role_and_sees_nothing_of_the_host(workshop: Workshop) -> None:
    source = (
        "import boto3, os\n"
        "def handler(event, context):\n"
        "    return {'who': boto3.client('sts').get_caller_identity()['Arn'], 'environment': dict(os.environ)}\n"
    )
    answer = workshop.invoke(workshop.make_function(source)[0])
    assert ":assumed-role/role-" in answer["who"]
    state, environment = workshop.cloud.state, answer["environment"]
    secrets = (state.secret_access_key, state.admin_token)
    assert not any(secret in value for value in environment.values() for secret in secrets)
    assert environment["AWS_ENDPOINT_URL_S3"] == workshop.cloud.endpoint
    assert environment["HOME"].startswith(str(workshop.cloud.directory.root))
    assert "PYTEST_CURRENT_TEST" not in environment


def send_by_rule(workshop: Workshop, function: str, *details: dict[str, Any]) -> str:
    """The rule by which the function gets an event for each of `details`."""
    events, rule = workshop.cloud.client("events"), workshop.name("rule")
    events.put_rule(Name=rule, EventPattern=json.dumps({"source": [rule]}))
    events.put_targets(Rule=rule, Targets=[{"Id": "function", "Arn": function}])
    for detail in details:
        entry = {"Source": rule, "DetailType": "any", "Detail": json.dumps(detail)}
        assert events.put_events(Entries=[entry])["FailedEntryCount"] == 0
    return rule


def test_no_event_is_lost_when_functions_are_busy(workshop: Workshop) -> None:
    # More events at once than functions may run: the others wait for their turn.
    source = (
        "import time\ndef handler(event, context):\n    time.sleep(0.05)\n    print('number', event['detail']['n'])\n"
    )
    name, arn = workshop.make_function(source)
    workshop.logs.create_log_group(logGroupName=f"/aws/lambda/{name}")
    rule = send_by_rule(workshop, arn, *({"n": number} for number in range(20)))
    # Small pages: a function's lines have identities of which a page's token is made.
    paginator, pages = workshop.logs.get_paginator("filter_log_events"), {"PageSize": 7}

    def seen() -> list[int]:
        found = paginator.paginate(logGroupName=f"/aws/lambda/{name}", PaginationConfig=pages)
        messages = (event["message"].split() for page in found for event in page["events"])
        return sorted(int(words[1]) for words in messages if words and words[0] == "number")

    wait_until("every message", lambda: seen() == [*range(20)])
    workshop.cloud.client("events").remove_targets(Rule=rule, Ids=["function"])


# Writes an object for each attempt, then fails.
_FAILING = """
import boto3, uuid
def handler(event, context):
    boto3.client("s3").put_object(Bucket="{bucket}", Key="{folder}/" + uuid.uuid4().hex)
    raise RuntimeError("broken")
"""


class FailingFunction:
    """A function that fails, and the queue of its dead letters."""

    def __init__(self, workshop: Workshop) -> None:
        self._sqs, self._folder, self._workshop = workshop.cloud.client("sqs"), workshop.name("attempts"), workshop
        self._queue = self._sqs.create_queue(QueueName=workshop.name("dead"))["QueueUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        letters = {"TargetArn": found["Attributes"]["QueueArn"]}
        source = _FAILING.format(bucket=workshop.bucket, folder=self._folder)
        _, self.arn = workshop.make_function(source, DeadLetterConfig=letters)

    def attempts(self) -> int:
        return len(self._workshop.keys(f"{self._folder}/"))

    def letter(self) -> dict[str, Any]:
        """The dead letter, once it is there."""

        def look() -> list[dict[str, Any]] | None:
            return self._sqs.receive_message(QueueUrl=self._queue, MessageAttributeNames=["All"]).get("Messages")

        [letter] = wait_until("the dead letter", look)
        return letter


def test_an_asynchronous_invocation_is_tried_three_times_and_then_a_dead_letter(workshop: Workshop) -> None:
    by_hand, by_rule, by_topic = (FailingFunction(workshop) for _ in range(3))
    asynchronous = {"InvocationType": "Event", "Payload": b'{"detail": {"n": 1}}'}
    workshop.cloud.client("lambda").invoke(FunctionName=by_hand.arn, **asynchronous)
    send_by_rule(workshop, by_rule.arn, {"n": 1})
    sns = workshop.cloud.client("sns")
    topic = sns.create_topic(Name=workshop.name("topic"))["TopicArn"]
    sns.subscribe(TopicArn=topic, Protocol="lambda", Endpoint=by_topic.arn)
    sns.publish(TopicArn=topic, Message='{"n": 1}')
    for function in (by_hand, by_rule, by_topic):
        letter = function.letter()
        # The event as the function got it, and nothing that names the function.
        event = json.loads(letter["Body"])
        assert event.get("detail") == {"n": 1} or event["Records"][0]["Sns"]["Message"] == '{"n": 1}'
        values = {name: value["StringValue"] for name, value in letter["MessageAttributes"].items()}
        assert values.keys() == {"RequestID", "ErrorCode", "ErrorMessage"}
        assert (values["ErrorCode"], values["ErrorMessage"]) == ("200", "broken")
        assert function.attempts() == 3


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

    name, _ = workshop.make_function(source("old"))
    patient = workshop.cloud.client("lambda", config=Config(read_timeout=120, retries={"total_max_attempts": 1}))

    def invoked(**event: bool) -> Any:
        return json.loads(patient.invoke(FunctionName=name, Payload=json.dumps(event))["Payload"].read())

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(invoked, wait=True)
        wait_until("the old code", lambda: workshop.keys(f"{folder}/started-old"))
        patient.update_function_code(FunctionName=name, ZipFile=packed(source("new")))
        patient.update_function_configuration(FunctionName=name, Environment={"Variables": {"A": "b"}})
        assert invoked() == "new"
        workshop.s3.put_object(Bucket=workshop.bucket, Key=f"{folder}/gate", Body=b"")
        assert running.result() == "old"
