"""Events that are put on a bus, one-time schedules, and messages to people."""

from typing import Any

from tests.conformance.backends import Backend, refusal


def entry(**changes: Any) -> dict[str, Any]:
    return {"Source": "muster", "DetailType": "Run Started", "Detail": '{"run": "one"}', **changes}


def test_an_entry_that_is_not_taken_fails_alone(backend: Backend) -> None:
    put = backend.client("events").put_events
    answer = put(Entries=[entry(Detail="no JSON"), entry(), entry(Source="aws.sagemaker")])
    assert (answer["FailedEntryCount"], answer["ResponseMetadata"]["HTTPStatusCode"]) == (2, 200)
    codes = [one.get("ErrorCode") for one in answer["Entries"]]
    assert codes == ["MalformedDetail", None, "NotAuthorizedForSourceException"]
    assert set(answer["Entries"][1]) == {"EventId"}
    # A request has at most ten entries, and an end.
    for entries in ([entry()] * 11, [entry(Detail=f'{{"text": "{"x" * 262_144}"}}')]):
        assert refusal(put, Entries=entries) == ("ValidationException", 400)


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


def test_a_schedule_is_made_once_with_a_plain_name_and_a_time(backend: Backend) -> None:
    create, name = backend.client("scheduler").create_schedule, backend.name("schedule")
    assert create(**schedule(name))["ScheduleArn"].endswith(f":schedule/default/{name}")
    assert refusal(create, **schedule(name)) == ("ConflictException", 409)
    for wrong in (schedule(f"{name}-2", ScheduleExpression="at(tomorrow)"), schedule("a b"), schedule("n" * 65)):
        assert refusal(create, **wrong) == ("ValidationException", 400), wrong


def test_a_message_has_a_text_and_a_subject_in_a_short_line(backend: Backend) -> None:
    publish, topic = backend.client("sns").publish, backend.make_topic()
    assert publish(TopicArn=topic, Subject="Muster: one has failed", Message="Why: …")["MessageId"]
    for subject, text in (("s" * 101, "m"), ("two\nlines", "m"), ("Übung", "m"), ("", "m"), ("one", "")):
        assert refusal(publish, TopicArn=topic, Subject=subject, Message=text) == ("InvalidParameter", 400), subject
