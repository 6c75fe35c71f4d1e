"""Runs that nobody started by hand: an object in the inbox, an event on the bus, a schedule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.contract.run.run_events import RUN_REQUESTED
from tests.support.deployed import Deployed
from tests.support.listening import Listener
from tests.support.waiting import wait_until

SPEC = {"replicas": 1, "entrypoint": ["python", "-c", "pass"]}


@pytest.fixture(scope="module")
def listener(deployed_stack: Deployed) -> Listener:
    return Listener(deployed_stack)


def put(stack, key: str, body: str) -> str:
    return stack.s3.put_object(Bucket=stack.bucket, Key=key, Body=body.encode())["ETag"].strip('"')


def read(stack, key: str) -> str | None:
    try:
        return stack.s3.get_object(Bucket=stack.bucket, Key=key)["Body"].read().decode()
    except stack.s3.exceptions.NoSuchKey:
        return None


def executions(stack, beginning: str) -> list[dict[str, Any]]:
    pages = stack.stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=stack.machine)
    return [e for page in pages for e in page["executions"] if e["name"].startswith(beginning)]


def ended(stack, beginning: str) -> dict[str, Any]:
    """The only execution whose name begins so, once it has ended."""
    [execution] = wait_until(
        f"the end of {beginning}", lambda: [e for e in executions(stack, beginning) if e["status"] != "RUNNING"]
    )
    return execution


def request(stack, **detail: Any) -> str:
    """Put Run Requested on the bus; its id."""
    entry = {
        "EventBusName": stack.outputs["EventBusName"],
        "Source": "team.nightly",
        "DetailType": RUN_REQUESTED,
        "Detail": json.dumps(detail),
    }
    return stack.cloud.client("events").put_events(Entries=[entry])["Entries"][0]["EventId"]


def created(bucket: str, key: str, etag: str) -> dict[str, Any]:
    """S3's notification of a new object, as SNS hands it to the function."""
    at = "2026-05-04T03:00:00.000Z"
    record = {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "us-east-1",
        "eventTime": at,
        "eventName": "ObjectCreated:Put",
        "userIdentity": {"principalId": "AWS:AIDAEXAMPLE"},
        "requestParameters": {"sourceIPAddress": "127.0.0.1"},
        "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8"},
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "inbox",
            "bucket": {
                "name": bucket,
                "ownerIdentity": {"principalId": "A3NL1KOZZKExample"},
                "arn": f"arn:aws:s3:::{bucket}",
            },
            "object": {"key": key, "size": 1, "eTag": etag, "sequencer": "0055AED6DCD90281E5"},
        },
    }
    sns = {
        "Type": "Notification",
        "MessageId": "95df01b4-ee98-5cb9-9903-4c221d41eb5e",
        "TopicArn": "arn:aws:sns:us-east-1:123456789012:inbox",
        "Message": json.dumps({"Records": [record]}),
        "Timestamp": at,
        "SignatureVersion": "1",
        "Signature": "EXAMPLE",
        "SigningCertUrl": "https://sns.us-east-1.amazonaws.com/certificate.pem",
        "UnsubscribeUrl": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
    }
    subscription = "arn:aws:sns:us-east-1:123456789012:inbox:8a21d249-4329-4871-acc6-7be709c6ea7f"
    return {
        "Records": [{"EventVersion": "1.0", "EventSubscriptionArn": subscription, "EventSource": "aws:sns", "Sns": sns}]
    }


def test_a_spec_in_the_inbox_is_started_once_however_often_s3_says_so(stack):
    etag = put(stack, "inbox/team/digits run.yaml", "replicas: 1\nentrypoint: [python, -c, pass]\n")
    assert ended(stack, "digits-run-")["status"] == "SUCCEEDED"
    again = stack.invoke("Start", created(stack.bucket, "inbox/team/digits+run.yaml", etag))
    assert again == {"outcomes": ["started before"]}
    assert len(executions(stack, "digits-run-")) == 1


def test_what_is_wrong_with_a_spec_lies_beside_it_until_it_is_right(stack, listener):
    put(stack, "inbox/broken.json", '{"replicas": "4", "trainer": "no colon"}')
    complaint = wait_until("the complaint", lambda: read(stack, "inbox/broken.json.error.txt"))
    for problem in ("replicas: found '4'; write a whole number", "trainer: found 'no colon'"):
        assert problem in complaint
    refused = listener.wait("Run Refused", request=f"s3://{stack.bucket}/inbox/broken.json")
    assert len(refused["problems"]) == 2
    assert executions(stack, "broken-") == []
    put(stack, "inbox/broken.json", json.dumps(SPEC))
    assert ended(stack, "broken-")["status"] == "SUCCEEDED"
    wait_until("the complaint's end", lambda: read(stack, "inbox/broken.json.error.txt") is None)


def test_an_event_that_asks_for_a_run_gets_it(stack):
    key = "inbox/by-uri.txt"  # no name of the inbox: only the event starts it
    put(stack, key, json.dumps({**SPEC, "name": "by-uri"}))
    request(stack, spec={**SPEC, "name": "by-value"})
    request(stack, spec_uri=f"s3://{stack.bucket}/{key}")
    assert ended(stack, "by-value")["status"] == "SUCCEEDED"
    assert ended(stack, "by-uri")["status"] == "SUCCEEDED"


@pytest.mark.parametrize(
    ("detail", "problem"),
    [
        ({"spec": {"replicas": 1}}, "trainer: neither trainer nor entrypoint is set"),
        ({}, 'write {"spec": {…}} or {"spec_uri": "s3://…"}'),
        ({"spec_uri": "s3://elsewhere/inbox/run.yaml"}, "put the spec under s3://"),
    ],
    ids=["broken spec", "no spec", "another bucket"],
)
def test_an_event_that_cannot_be_obeyed_is_answered(stack, listener, detail, problem):
    event = request(stack, **detail)
    assert problem in " ".join(listener.wait("Run Refused", request=event)["problems"])


def test_a_name_that_another_run_has_is_refused(stack, listener):
    request(stack, spec={**SPEC, "name": "asked-twice"})
    ended(stack, "asked-twice")
    event = request(stack, spec={**SPEC, "name": "asked-twice", "replicas": 2})
    assert listener.wait("Run Refused", request=event)["error"] == "Muster.RunNameTakenError"


def test_a_schedule_starts_one_run_for_each_of_its_moments(stack):
    events = stack.cloud.client("events")
    [rule] = [item["Name"] for item in events.list_rules()["Rules"] if "Schedulenightly" in item["Name"]]
    [target] = events.list_targets_by_rule(Rule=rule)["Targets"]
    assert list(target["InputTransformer"]["InputPathsMap"].values()) == ["$.time"]
    [field] = target["InputTransformer"]["InputPathsMap"]
    template = target["InputTransformer"]["InputTemplate"]
    assert template.count("<") == 1, "EventBridge reads every <word> as a field"
    tick = json.loads(template.replace(f"<{field}>", '"2026-05-04T03:00:00Z"'))
    assert stack.invoke("Start", tick) == {"outcomes": ["started"]}
    assert ended(stack, "nightly-202605040300")["status"] == "SUCCEEDED"
    assert stack.invoke("Start", tick) == {"outcomes": ["started before"]}
    assert len(executions(stack, "nightly-")) == 1


def test_a_schedule_whose_spec_is_not_there_says_so(stack, listener):
    tick = {"schedule": {"name": "weekly", "at": "2026-05-04T03:00:00Z", "spec_key": "inbox/missing"}}
    assert stack.invoke("Start", tick) == {"outcomes": ["refused"]}
    assert "the object does not exist" in listener.wait("Run Refused", request="weekly-202605040300")["problems"][0]
