"""Start: what asks for a run names its execution, so that what comes twice starts nothing twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pydantic import ValidationError

from muster.contract.errors import RunNameTakenError
from muster.contract.spec.spec import SPEC_BYTES_MAX
from muster.control.aws.inbox import Inbox
from muster.control.start import Started, Starter
from tests.memory import AwsError, Fault
from tests.memory.harness import SPEC, ControlHarness

TEXT = json.dumps(SPEC)
KEY = "inbox/nightly run.yaml"


@pytest.fixture
def starter(harness: ControlHarness) -> Starter:
    return Starter(harness.executions, Inbox(harness.plane.store), harness.plane.bus)


def put(harness: ControlHarness, text: str | bytes, key: str = KEY) -> str:
    """Put a spec into the inbox; its ETag as S3's notification has it, without quotes."""
    answer = harness.plane.store.s3.put_object(Bucket="bucket", Key=key, Body=text)
    return answer["ETag"].strip('"')


def objects_created(*objects: tuple[str, str], source: str = "192.0.2.1") -> dict[str, Any]:
    """The event of the function: S3's notification of these keys and ETags, as SNS delivers it."""
    records = [
        {
            "eventVersion": "2.1",
            "eventSource": "aws:s3",
            "awsRegion": "us-east-1",
            "eventTime": "2026-01-01T00:00:00.000Z",
            "eventName": "ObjectCreated:Put",
            "userIdentity": {"principalId": "AWS:AIDAEXAMPLE"},
            "requestParameters": {"sourceIPAddress": source},
            "responseElements": {"x-amz-request-id": "C3D13FE58DE4C810", "x-amz-id-2": "FMyUVURIY8"},
            "s3": {
                "s3SchemaVersion": "1.0",
                "configurationId": "inbox",
                "bucket": {"name": "bucket", "ownerIdentity": {"principalId": "A3"}, "arn": "arn:aws:s3:::bucket"},
                "object": {"key": key, "size": 1, "eTag": etag, "sequencer": "00"},
            },
        }
        for key, etag in objects
    ]
    return delivered({"Records": records})


def delivered(message: dict[str, Any]) -> dict[str, Any]:
    topic = "arn:aws:sns:us-east-1:123456789012:inbox"
    notification = {
        "Type": "Notification",
        "MessageId": "95df01b4-ee98-5cb9-9903-4c221d41eb5e",
        "TopicArn": topic,
        "Subject": "Amazon S3 Notification",
        "Message": json.dumps(message),
        "Timestamp": "2026-01-01T00:00:00.000Z",
        "SignatureVersion": "1",
        "Signature": "EXAMPLE==",
        "SigningCertUrl": "https://sns.us-east-1.amazonaws.com/certificate.pem",
        "UnsubscribeUrl": "https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe",
        "MessageAttributes": {},
    }
    record = {
        "EventSource": "aws:sns",
        "EventVersion": "1.0",
        "EventSubscriptionArn": f"{topic}:1",
        "Sns": notification,
    }
    return {"Records": [record]}


def requested(detail: Any, event_id: str = "cdc73f9d-aea9-11e3-9d5a-835b769c0d9c") -> dict[str, Any]:
    """Run Requested, as EventBridge delivers it."""
    return {
        "version": "0",
        "id": event_id,
        "detail-type": "Run Requested",
        "source": "a.pipeline",
        "account": "123456789012",
        "time": "2026-01-01T00:00:00Z",
        "region": "us-east-1",
        "resources": [],
        "detail": detail,
    }


def scheduled(at: str = "2026-01-01T02:00:00Z", **fields: str) -> dict[str, Any]:
    return {"schedule": {"name": "nightly", "at": at, **fields}}


def outcomes(starter: Starter, event: dict[str, Any]) -> list[Started]:
    return list(starter.from_function_event(event))


def problems(harness: ControlHarness) -> str:
    """What the one refusal on the bus says."""
    [refused] = harness.cloud.events.of("Run Refused")
    return "\n".join(refused["problems"])


# --- the inbox ------------------------------------------------------------------------------------


def test_an_object_in_the_inbox_starts_a_run_that_begins_with_its_name(
    harness: ControlHarness, starter: Starter
) -> None:
    event = objects_created(("inbox/nightly+run.yaml", put(harness, TEXT)))
    assert outcomes(starter, event) == [Started.STARTED]
    [name] = harness.executions.live_runs()
    assert name.startswith("nightly-run-")
    [started] = harness.cloud.calls.of("StartExecution")
    assert json.loads(started["input"]) == SPEC
    # Delivered again, it starts nothing: Step Functions does not say that it runs already.
    assert outcomes(starter, event) == [Started.STARTED]
    harness.cloud.workflow.succeed(name)
    assert outcomes(starter, event) == [Started.KNOWN]
    assert harness.executions.live_runs() == set()


def test_an_object_that_an_aws_service_has_put_starts_a_run_too(harness: ControlHarness, starter: Starter) -> None:
    event = objects_created((KEY, put(harness, TEXT)), source="datasync.amazonaws.com")
    assert outcomes(starter, event) == [Started.STARTED]


def test_another_version_of_an_object_starts_another_run(harness: ControlHarness, starter: Starter) -> None:
    for text in (TEXT, json.dumps({**SPEC, "replicas": 2})):
        outcomes(starter, objects_created((KEY, put(harness, text))))
    assert len(harness.executions.live_runs()) == 2


def test_a_spec_may_name_its_run(harness: ControlHarness, starter: Starter) -> None:
    outcomes(starter, objects_created((KEY, put(harness, json.dumps({**SPEC, "name": "mine"})))))
    assert harness.executions.live_runs() == {"mine"}


def test_a_recipe_in_s3_is_resolved_by_the_run_itself(harness: ControlHarness, starter: Starter) -> None:
    spec = {"replicas": 1, "instance_type": "ml.p5.48xlarge", "recipe": {"file": "s3://team/recipes/a.yaml"}}
    assert outcomes(starter, objects_created((KEY, put(harness, json.dumps(spec))))) == [Started.STARTED]
    [started] = harness.cloud.calls.of("StartExecution")
    assert json.loads(started["input"]) == spec


def test_a_recipe_that_is_a_file_is_refused_with_all_else_beside_the_spec(
    harness: ControlHarness, starter: Starter
) -> None:
    text = put(harness, "replicas: 1\nvolume_gb: 0\nrecipe: own.yaml\n")
    assert outcomes(starter, objects_created((KEY, text))) == [Started.REFUSED]
    found = harness.plane.store.get(f"{KEY}.error.txt")
    assert found is not None
    assert "recipe.file: found 'own.yaml', a local file" in found.body.decode()
    assert "volume_gb" in found.body.decode()


def test_an_object_that_is_gone_or_was_replaced_starts_nothing(harness: ControlHarness, starter: Starter) -> None:
    etag = put(harness, TEXT)
    put(harness, json.dumps({**SPEC, "replicas": 2}))
    gone = ("inbox/gone.yaml", etag)
    assert outcomes(starter, objects_created((KEY, etag), gone)) == [Started.WITHDRAWN] * 2
    assert harness.executions.live_runs() == set()
    assert harness.emitted() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replicas: 0\ntrainer: a.b:c\nimage: i:1", "replicas"),
        ("", "the spec"),
        (b"\xff\xfe", "bytes that are not UTF-8"),
        ("x" * (SPEC_BYTES_MAX + 2), "the spec"),
    ],
)
def test_a_broken_spec_is_refused_with_what_is_wrong_beside_it(
    harness: ControlHarness, starter: Starter, text: str | bytes, words: str
) -> None:
    assert outcomes(starter, objects_created((KEY, put(harness, text)))) == [Started.REFUSED]
    complaint = harness.cloud.s3.objects("bucket")[f"{KEY}.error.txt"]
    assert words in complaint.body.decode()
    assert words in problems(harness)
    [refused] = harness.cloud.events.of("Run Refused")
    assert (refused["request"], refused["error"]) == (f"s3://bucket/{KEY}", "Muster.SpecError")
    # Mended, it starts, and the complaint goes.
    assert outcomes(starter, objects_created((KEY, put(harness, TEXT)))) == [Started.STARTED]
    assert f"{KEY}.error.txt" not in harness.cloud.s3.objects("bucket")


def test_a_name_that_another_run_has_is_refused(harness: ControlHarness, starter: Starter) -> None:
    harness.executions.start("mine", '{"another": "spec"}')
    etag = put(harness, json.dumps({**SPEC, "name": "mine"}))
    assert outcomes(starter, objects_created((KEY, etag))) == [Started.REFUSED]
    assert "mine" in harness.cloud.s3.objects("bucket")[f"{KEY}.error.txt"].body.decode()


def test_each_object_of_an_event_is_answered(harness: ControlHarness, starter: Starter) -> None:
    good = put(harness, TEXT)
    bad = put(harness, "[]", "inbox/bad.json")
    event = objects_created((KEY, good), ("inbox/bad.json", bad))
    assert outcomes(starter, event) == [Started.STARTED, Started.REFUSED]


def test_the_test_message_of_s3_is_no_request(starter: Starter) -> None:
    assert outcomes(starter, delivered({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "bucket"})) == []


def test_an_inbox_that_cannot_be_read_is_an_error_and_no_refusal(harness: ControlHarness, starter: Starter) -> None:
    etag = put(harness, TEXT)
    harness.cloud.calls.inject(Fault("GetObject", AwsError("AccessDenied", "kms:Decrypt", 403)))
    with pytest.raises(ClientError, match="AccessDenied"):
        outcomes(starter, objects_created((KEY, etag)))
    assert harness.emitted() == []


# --- Run Requested --------------------------------------------------------------------------------


def test_an_event_starts_a_run_once_however_often_it_is_delivered(harness: ControlHarness, starter: Starter) -> None:
    event = requested({"spec": SPEC})
    assert [outcomes(starter, event) for _ in range(2)] == [[Started.STARTED]] * 2
    [name] = harness.executions.live_runs()
    assert name.startswith("requested-")
    assert outcomes(starter, requested({"spec": SPEC}, "another")) == [Started.STARTED]
    assert len(harness.executions.live_runs()) == 2


def test_an_event_may_name_a_spec_in_the_inbox(harness: ControlHarness, starter: Starter) -> None:
    put(harness, TEXT)
    assert outcomes(starter, requested({"spec_uri": f"s3://bucket/{KEY}"})) == [Started.STARTED]


@pytest.mark.parametrize(
    ("detail", "words"),
    [
        ({}, "detail"),
        ({"spec": SPEC, "spec_uri": "s3://bucket/inbox/a.yaml"}, "detail"),
        ({"another": "field"}, "detail"),
        ({"spec_uri": 7}, "detail"),
        ({"spec": {"replicas": 0}}, "replicas"),
        ({"spec_uri": "s3://bucket/control/one/plan.json"}, "put the spec under s3://bucket/inbox/"),
        ({"spec_uri": "s3://elsewhere/inbox/a.yaml"}, "put the spec under s3://bucket/inbox/"),
        ({"spec_uri": "inbox/a.yaml"}, "put the spec under s3://bucket/inbox/"),
        ({"spec_uri": "s3://bucket/inbox/gone.yaml"}, "put it at s3://bucket/inbox/gone.yaml"),
    ],
)
def test_a_request_that_is_none_is_refused(harness: ControlHarness, starter: Starter, detail: Any, words: str) -> None:
    assert outcomes(starter, requested(detail)) == [Started.REFUSED]
    assert words in problems(harness)
    assert harness.executions.live_runs() == set()


# --- schedules ------------------------------------------------------------------------------------


def test_a_schedule_starts_one_run_a_tick(harness: ControlHarness, starter: Starter) -> None:
    for at in ("2026-01-01T02:00:00Z", "2026-01-01T02:00:00Z", "2026-01-02T02:00:00Z"):
        assert outcomes(starter, scheduled(at, spec=TEXT)) == [Started.STARTED]
    assert harness.executions.live_runs() == {"nightly-202601010200", "nightly-202601020200"}


def test_a_schedule_may_name_a_spec_in_the_inbox(harness: ControlHarness, starter: Starter) -> None:
    put(harness, TEXT)
    assert outcomes(starter, scheduled(spec_key=KEY)) == [Started.STARTED]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"spec_key": "inbox/gone.yaml"}, "put it at s3://bucket/inbox/gone.yaml"),
        ({"spec": json.dumps({**SPEC, "name": "mine"})}, "each run of a schedule gets its own name"),
        ({"spec": ""}, "the spec"),
    ],
)
def test_a_schedule_whose_spec_cannot_be_run_is_refused(
    harness: ControlHarness, starter: Starter, fields: dict[str, str], words: str
) -> None:
    assert outcomes(starter, scheduled(**fields)) == [Started.REFUSED]
    assert words in problems(harness)
    [refused] = harness.cloud.events.of("Run Refused")
    assert refused["request"] == "nightly-202601010200"


@pytest.mark.parametrize("event", [{}, {"Records": [{"s3": {}}]}, {"schedule": {}}, {"detail-type": "Run Requested"}])
def test_an_event_that_is_none_of_these_is_an_error(starter: Starter, event: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        outcomes(starter, event)


# --- executions -----------------------------------------------------------------------------------


def test_a_start_that_was_not_answered_is_found_by_the_next(harness: ControlHarness) -> None:
    assert harness.executions.start("one", TEXT)
    harness.cloud.workflow.succeed("one")
    assert not harness.executions.start("one", TEXT)
    with pytest.raises(RunNameTakenError, match="one"):
        harness.executions.start("one", json.dumps({**SPEC, "replicas": 3}))
