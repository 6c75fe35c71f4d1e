"""Events that are put on a bus, one-time schedules, and messages to people."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.backends import Backend, MemoryBackend, refusal


def entry(**changes: Any) -> dict[str, Any]:
    return {"Source": "muster", "DetailType": "Run Started", "Detail": '{"run": "one"}', **changes}


def test_an_event_that_is_taken_has_an_id(backend: Backend) -> None:
    answer = backend.client("events").put_events(Entries=[entry()])
    assert answer["FailedEntryCount"] == 0
    [taken] = answer["Entries"]
    assert set(taken) == {"EventId"}


def test_an_entry_that_is_not_taken_fails_alone(backend: Backend) -> None:
    answer = backend.client("events").put_events(Entries=[entry(Detail="no JSON"), entry()])
    assert answer["FailedEntryCount"] == 1
    refused, taken = answer["Entries"]
    assert (refused["ErrorCode"], set(taken)) == ("MalformedDetail", {"EventId"})
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_a_source_of_aws_is_refused(backend: Backend) -> None:
    answer = backend.client("events").put_events(Entries=[entry(Source="aws.sagemaker")])
    assert answer["Entries"][0]["ErrorCode"] == "NotAuthorizedForSourceException"


def test_a_request_has_at_most_ten_entries(backend: Backend) -> None:
    put = backend.client("events").put_events
    assert refusal(put, Entries=[entry()] * 11) == ("ValidationException", 400)


def test_a_request_has_an_end(backend: Backend) -> None:
    put = backend.client("events").put_events
    big = entry(Detail=f'{{"text": "{"x" * 262_144}"}}')
    assert refusal(put, Entries=[big]) == ("ValidationException", 400)


def schedule(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "Name": name,
        "ScheduleExpression": "at(2099-01-01T00:00:00)",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "Target": {
            "Arn": "arn:aws:lambda:us-east-1:123456789012:function:alarm",
            "RoleArn": "arn:aws:iam::123456789012:role/scheduler",
            "Input": '{"run": "one"}',
        },
        **changes,
    }


def test_a_schedule_is_made_once(backend: Backend) -> None:
    create, name = backend.client("scheduler").create_schedule, backend.name("schedule")
    assert create(**schedule(name))["ScheduleArn"].endswith(f":schedule/default/{name}")
    assert refusal(create, **schedule(name)) == ("ConflictException", 409)


def test_a_schedule_must_have_a_time(backend: Backend) -> None:
    create = backend.client("scheduler").create_schedule
    wrong = schedule(backend.name("schedule"), ScheduleExpression="at(tomorrow)")
    assert refusal(create, **wrong) == ("ValidationException", 400)


def test_a_schedule_has_a_plain_name(backend: Backend) -> None:
    create = backend.client("scheduler").create_schedule
    assert refusal(create, **schedule("a b")) == ("ValidationException", 400)
    assert refusal(create, **schedule("n" * 65)) == ("ValidationException", 400)


def test_a_schedule_fires_once_and_is_gone(memory: MemoryBackend) -> None:
    cloud, create = memory.cloud, memory.client("scheduler").create_schedule
    create(**schedule("late", ScheduleExpression="at(2026-01-01T02:00:00)"))
    create(**schedule("early", ScheduleExpression="at(2026-01-01T01:00:00)", ScheduleExpressionTimezone="UTC"))
    fired: list[str] = []
    cloud.scheduler.on_firing = lambda firing: fired.append(f"{firing.name} {cloud.clock.now():%H:%M} {firing.input}")
    cloud.clock.advance(3_599)
    assert fired == []
    cloud.clock.advance(86_400)
    assert fired == ['early 01:00 {"run": "one"}', 'late 02:00 {"run": "one"}']
    assert cloud.scheduler.schedules == {}
    assert create(**schedule("late"))["ScheduleArn"].endswith("/late")


def test_a_message_is_published(backend: Backend) -> None:
    publish, topic = backend.client("sns").publish, backend.make_topic()
    assert publish(TopicArn=topic, Subject="Muster: one has failed", Message="Why: …")["MessageId"]


@pytest.mark.parametrize("subject", ["s" * 101, "two\nlines", "Übung", ""])
def test_a_subject_is_a_short_line(backend: Backend, subject: str) -> None:
    publish, topic = backend.client("sns").publish, backend.make_topic()
    assert refusal(publish, TopicArn=topic, Subject=subject, Message="m") == ("InvalidParameter", 400)


def test_a_message_is_not_empty(backend: Backend) -> None:
    assert refusal(backend.client("sns").publish, TopicArn=backend.make_topic(), Message="") == (
        "InvalidParameter",
        400,
    )
