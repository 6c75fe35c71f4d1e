"""Start: what asks for a run names its execution, so that what comes twice starts nothing twice."""

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pydantic import ValidationError

from muster.contract.spec.spec import SPEC_BYTES_MAX
from muster.control.aws.inbox import Inbox
from muster.control.start import Started, Starter
from tests.memory import AwsError, Fault
from tests.memory.harness import SPEC, ControlHarness
from tests.support.control_steps import Row

TEXT = json.dumps(SPEC)
KEY = "inbox/nightly run.yaml"
COMPLAINT = f"{KEY}.error.txt"
STARTED, REFUSED = [Started.STARTED], [Started.REFUSED]


def put(harness: ControlHarness, text: str | bytes, key: str = KEY) -> str:
    """Put a spec into the inbox; its ETag as S3's notification has it, without quotes."""
    answer = harness.plane.store.s3.put_object(Bucket="bucket", Key=key, Body=text)
    return answer["ETag"].strip('"')


def objects_created(*objects: tuple[str, str], **message: Any) -> dict[str, Any]:
    """The event of the function: S3's notification of these keys and ETags, as SNS delivers it."""
    records = [
        {
            "eventSource": "aws:s3",
            "eventName": "ObjectCreated:Put",
            "s3": {"bucket": {"name": "bucket"}, "object": {"key": key, "size": 1, "eTag": etag, "sequencer": "00"}},
        }
        for key, etag in objects
    ]
    topic, url = "arn:aws:sns:us-east-1:123456789012:inbox", "https://sns.us-east-1.amazonaws.com/"
    signed = {"Timestamp": "2026-01-01T00:00:00.000Z", "SignatureVersion": "1", "Signature": "EXAMPLE=="}
    links = {"SigningCertUrl": f"{url}certificate.pem", "UnsubscribeUrl": f"{url}?Action=Unsubscribe"}
    body = {"Message": json.dumps(message or {"Records": records}), "Subject": "Amazon S3 Notification"}
    notification = {"Type": "Notification", "MessageId": "1", "TopicArn": topic, **body, **signed, **links}
    record = {"EventSource": "aws:sns", "EventVersion": "1.0", "EventSubscriptionArn": f"{topic}:1"}
    return {"Records": [{**record, "Sns": {**notification, "MessageAttributes": {}}}]}


def requested(detail: Any, event_id: str = "cdc73f9d-aea9-11e3-9d5a-835b769c0d9c") -> dict[str, Any]:
    """Run Requested, as EventBridge delivers it."""
    event = {"version": "0", "id": event_id, "detail-type": "Run Requested", "source": "a.pipeline"}
    where = {"account": "123456789012", "time": "2026-01-01T00:00:00Z", "region": "us-east-1", "resources": []}
    return {**event, **where, "detail": detail}


def scheduled(at: str = "2026-01-01T02:00:00Z", **fields: str) -> dict[str, Any]:
    return {"schedule": {"name": "nightly", "at": at, **fields}}


def outcomes(harness: ControlHarness, event: dict[str, Any]) -> list[Started]:
    """What came of each request of an event."""
    starter = Starter(harness.executions, Inbox(harness.plane.store), harness.plane.bus)
    return list(starter.from_function_event(event))


def put_and_start(harness: ControlHarness, text: str | bytes) -> list[Started]:
    return outcomes(harness, objects_created((KEY, put(harness, text))))


def problems(harness: ControlHarness) -> str:
    """What the one refusal on the bus says."""
    [refused] = harness.cloud.events.of("Run Refused")
    return "\n".join(refused["problems"])


def complaint(harness: ControlHarness) -> str:
    """What lies beside the spec."""
    return harness.cloud.s3.objects("bucket")[COMPLAINT].body.decode()


# --- the inbox ------------------------------------------------------------------------------------


def test_an_object_in_the_inbox_starts_a_run_that_begins_with_its_name(harness: ControlHarness) -> None:
    event = objects_created(("inbox/nightly+run.yaml", put(harness, TEXT)))
    assert outcomes(harness, event) == STARTED
    [name] = harness.executions.live_runs()
    assert name.startswith("nightly-run-")
    [started] = harness.cloud.calls.of("StartExecution")
    assert json.loads(started["input"]) == SPEC
    # Delivered again, it starts nothing: Step Functions does not say that it runs already.
    assert outcomes(harness, event) == STARTED
    harness.cloud.workflow.succeed(name)
    assert outcomes(harness, event) == [Started.KNOWN]
    assert harness.executions.live_runs() == set()
    # Another version of the object starts another run, whose name is the spec's where it has one.
    assert put_and_start(harness, json.dumps({**SPEC, "name": "mine"})) == STARTED
    assert harness.executions.live_runs() == {"mine"}
    assert put_and_start(harness, json.dumps({**SPEC, "name": "mine", "replicas": 2})) == REFUSED
    assert "mine" in complaint(harness)


def test_an_object_that_is_gone_or_was_replaced_starts_nothing(harness: ControlHarness) -> None:
    etag = put(harness, TEXT)
    put(harness, json.dumps({**SPEC, "replicas": 2}))
    event = objects_created((KEY, etag), ("inbox/gone.yaml", etag))
    assert outcomes(harness, event) == [Started.WITHDRAWN] * 2, "each object of an event is answered"
    assert (harness.executions.live_runs(), harness.emitted()) == (set(), [])


def test_a_broken_spec_is_refused_with_what_is_wrong_beside_it(row: Row) -> None:
    for name, text, words in (
        ("a field", "replicas: 0\ntrainer: a.b:c\nimage: i:1", ["replicas"]),
        ("empty", "", ["the spec"]),
        ("bytes", b"\xff\xfe", ["not UTF-8"]),
        ("too long", "é" * SPEC_BYTES_MAX, ["the spec: found 260,001 bytes; at most 260,000"]),
        ("for muster launch", f"{TEXT[:-1]}, source_dir: ., role_arn: team}}", ["source_dir", "role_arn"]),
        ("a local recipe", "replicas: 1\nvolume_gb: 0\nrecipe: own.yaml\n", ["recipe", "volume_gb"]),
    ):
        with row(name) as harness:
            assert put_and_start(harness, text) == REFUSED
            assert [word for word in words if word not in complaint(harness)] == []
            assert [word for word in words if word not in problems(harness)] == []
            [refused] = harness.cloud.events.of("Run Refused")
            assert (refused["request"], refused["error"]) == (f"s3://bucket/{KEY}", "Muster.SpecError")
            # Mended, it starts, and the complaint goes.
            assert put_and_start(harness, TEXT) == STARTED
            assert COMPLAINT not in harness.cloud.s3.objects("bucket")


def test_the_test_message_of_s3_is_no_request(harness: ControlHarness) -> None:
    assert outcomes(harness, objects_created(Service="Amazon S3", Event="s3:TestEvent", Bucket="bucket")) == []


def test_an_inbox_that_cannot_be_read_is_an_error_and_no_refusal(harness: ControlHarness) -> None:
    harness.cloud.calls.inject(Fault("GetObject", AwsError("AccessDenied", "kms:Decrypt", 403)))
    with pytest.raises(ClientError, match="AccessDenied"):
        put_and_start(harness, TEXT)
    assert harness.emitted() == []


# --- Run Requested --------------------------------------------------------------------------------


def test_an_event_starts_a_run_once_however_often_it_is_delivered(harness: ControlHarness) -> None:
    event = requested({"spec": SPEC})
    assert [outcomes(harness, event) for _ in range(2)] == [STARTED] * 2
    [name] = harness.executions.live_runs()
    assert name.startswith("requested-")
    assert outcomes(harness, requested({"spec": SPEC}, "another")) == STARTED
    assert len(harness.executions.live_runs()) == 2


def test_an_event_or_a_schedule_may_name_a_spec_in_the_inbox(harness: ControlHarness) -> None:
    put(harness, TEXT)
    assert outcomes(harness, requested({"spec_uri": f"s3://bucket/{KEY}"})) == STARTED
    assert outcomes(harness, scheduled(spec_key=KEY)) == STARTED
    assert len(harness.executions.live_runs()) == 2


def test_a_request_that_is_none_is_refused(row: Row) -> None:
    put_it = "put the spec under s3://bucket/inbox/"
    rows: list[tuple[Any, str]] = [
        ({}, "detail"),
        ({"spec": SPEC, "spec_uri": "s3://bucket/inbox/a.yaml"}, "detail"),
        ({"spec": SPEC, "why": "nightly"}, "detail.why: unknown field; the known fields are spec, spec_uri"),
        ({"spec_uri": 7}, "detail.spec_uri: found 7"),
        ({"spec": {"replicas": 0}}, "replicas"),
        ({"spec_uri": "s3://bucket/control/one/plan.json"}, put_it),
        ({"spec_uri": "s3://elsewhere/inbox/a.yaml"}, put_it),
        ({"spec_uri": "inbox/a.yaml"}, put_it),
        ({"spec_uri": "s3://bucket/inbox/gone.yaml"}, "put it at s3://bucket/inbox/gone.yaml"),
    ]
    for detail, words in rows:
        with row(detail) as harness:
            assert outcomes(harness, requested(detail)) == REFUSED
            assert words in problems(harness)
            assert harness.executions.live_runs() == set()


# --- schedules ------------------------------------------------------------------------------------


def test_a_schedule_starts_one_run_a_tick(harness: ControlHarness) -> None:
    for at in ("2026-01-01T02:00:00Z", "2026-01-01T02:00:00Z", "2026-01-02T02:00:00Z"):
        assert outcomes(harness, scheduled(at, spec=TEXT)) == STARTED
    assert harness.executions.live_runs() == {"nightly-202601010200", "nightly-202601020200"}


def test_a_schedule_names_its_runs_itself_and_a_refusal_by_its_tick(harness: ControlHarness) -> None:
    assert outcomes(harness, scheduled(spec=json.dumps({**SPEC, "name": "mine"}))) == REFUSED
    assert "name" in problems(harness)
    [refused] = harness.cloud.events.of("Run Refused")
    assert refused["request"] == "nightly-202601010200"


def test_an_event_that_is_none_of_these_is_an_error(row: Row) -> None:
    events: list[dict[str, Any]] = [{}, {"Records": [{"s3": {}}]}, {"schedule": {}}, {"detail-type": "Run Requested"}]
    for event in events:
        with row(event) as harness, pytest.raises(ValidationError):
            outcomes(harness, event)
