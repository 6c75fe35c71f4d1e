"""`muster deadletters`: what a letter says, and what becomes of it when it is replayed or dropped."""

from __future__ import annotations

import json
from dataclasses import replace as changed
from typing import Any

import pytest

from muster.client.errors import BusyError, ForeignStackError, UnknownDeadLetterError
from muster.client.runs.dead_letter import DeadLetter, GivenUpBy
from muster.client.runs.dead_letters import drop, list_letters, replay
from tests.memory import Fault, lost_answer, server_error
from tests.memory.calls import AwsError as Refusal
from tests.memory.cloud import ACCOUNT, REGION, MemoryCloud
from tests.support.memory_client import client_of

FUNCTIONS = ("react", "stop", "sweep", "start", "notify", "timer")
TOKEN = "AQCsecret" * 30
JOB = {"detail-type": "SageMaker Training Job State Change", "source": "aws.sagemaker"}
JOB_FAILED = {
    **JOB,
    "detail": {"TrainingJobName": "muster-night-r3-a2", "TrainingJobStatus": "Failed", "SecondaryStatus": "Failed"},
}
TIMER = {"run": "night", "timer": "deadline"}


@pytest.fixture
def cloud() -> MemoryCloud:
    cloud = MemoryCloud()
    cloud.functions.names = {f"{name}-physical" for name in FUNCTIONS}
    return cloud


def send(cloud: MemoryCloud, body: Any, **attributes: str) -> str:
    """Put a letter into the queue; its id."""
    typed = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
    text = body if isinstance(body, str) else json.dumps(body)
    sent = cloud.client("sqs").send_message(QueueUrl="https://sqs/letters", MessageBody=text, MessageAttributes=typed)
    return str(sent["MessageId"])


def letter(cloud: MemoryCloud, body: Any, **attributes: str) -> DeadLetter:
    """The only letter of the queue, as `list` shows it."""
    send(cloud, body, **(attributes or {"RequestID": "1", "ErrorCode": "200", "ErrorMessage": "broken"}))
    [found] = list_letters(client_of(cloud), 10).letters
    return found


# --- what a letter says -----------------------------------------------------------------------------

RECORDS = {"Records": [{"s3": {"object": {"key": "inbox/bert.yaml", "eTag": "1"}}}]}
NOTICES = {"Records": [{"s3": {"object": {"key": "notices/night/end-r3-a2-pod-0-1.json"}}}]}
NOTIFICATION = {
    "Type": "Notification",
    "MessageId": "m",
    "TopicArn": f"arn:aws:sns:{REGION}:{ACCOUNT}:inbox",
    "Subject": "Amazon S3 Notification",
    "Message": json.dumps(RECORDS),
    "Timestamp": "2026-01-01T00:00:00.000Z",
    "SignatureVersion": "1",
    "Signature": "c2lnbmVk",
    "SigningCertURL": "https://sns.us-east-1.amazonaws.com/cert.pem",
    "UnsubscribeURL": f"https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn=arn:aws:sns:{REGION}:1:a",
}


@pytest.mark.parametrize(
    ("body", "function", "run", "words"),
    [
        (JOB_FAILED, "react", "night", "the training job muster-night-r3-a2: Failed Failed"),
        (
            {"Records": [{"Sns": {"Message": json.dumps(NOTICES)}}]},
            "react",
            "night",
            "a notice: notices/night/end-r3-a2-pod-0-1.json",
        ),
        (
            {"detail-type": "SageMaker HyperPod Cluster Node Health Event", "detail": {"ClusterName": "ml-cluster"}},
            "react",
            None,
            "SageMaker HyperPod Cluster Node Health Event: ml-cluster",
        ),
        (
            {
                "detail-type": "Step Functions Execution Status Change",
                "detail": {"name": "night", "status": "ABORTED"},
            },
            "stop",
            "night",
            "the execution night ended: ABORTED",
        ),
        ({"detail-type": "Scheduled Event", "source": "aws.events", "detail": {}}, "sweep", None, "schedule of the"),
        (
            {"detail-type": "Run Requested", "source": "mine", "detail": {"spec": {"environment": {"KEY": "hunter2"}}}},
            "start",
            None,
            "Run Requested, from mine",
        ),
        (
            {"schedule": {"name": "nightly", "at": "2026-01-01T03:00:00Z", "spec": "environment: {KEY: hunter2}"}},
            "start",
            None,
            "a run of the schedule nightly, due at 2026-01-01T03:00:00Z",
        ),
        ({"Records": [{"Sns": {"Message": json.dumps(RECORDS)}}]}, "start", None, "in the inbox: inbox/bert.yaml"),
        (
            {"detail-type": "Run Failed", "source": "muster", "detail": {"run": "night"}},
            "notify",
            "night",
            "Run Failed of night",
        ),
        (TIMER, "timer", "night", "the timer deadline of the run night"),
        ({"run": "night", "rank": 0, "token": TOKEN}, None, "night", "not known"),
        ("no JSON", None, None, "not known"),
        ("[]", None, None, "not known"),
    ],
)
def test_a_letter_of_lambda_names_the_function_that_its_event_is_for(
    cloud: MemoryCloud, body: Any, function: str | None, run: str | None, words: str
) -> None:
    found = letter(cloud, body)
    assert (found.function, found.run, found.given_up_by) == (function, run, GivenUpBy.LAMBDA)
    assert words in found.event
    assert found.error == "broken"
    assert (found.obstacle is None) == (function is not None)


def test_a_letter_shows_neither_task_tokens_nor_the_content_of_an_event(cloud: MemoryCloud) -> None:
    body = {"run": "night", "token": TOKEN, "spec": {"environment": {"KEY": "hunter2"}}}
    found = letter(cloud, body, ErrorMessage=f"the token {TOKEN} is not valid")
    assert found.error == "the token (task token) is not valid"
    assert TOKEN not in found.to_line()
    assert "hunter2" not in found.to_line()


def test_a_letter_of_eventbridge_names_the_target_of_its_rule(cloud: MemoryCloud) -> None:
    arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:react-physical:live"
    found = letter(
        cloud,
        JOB_FAILED,
        RULE_ARN="arn:aws:events:::rule/JobEvents",
        TARGET_ARN=arn,
        ERROR_CODE="NO_PERMISSIONS",
        ERROR_MESSAGE="denied",
    )
    assert (found.function, found.given_up_by) == ("react", GivenUpBy.EVENTBRIDGE)
    assert found.error == "NO_PERMISSIONS: denied"


def test_a_target_that_the_stack_no_longer_has_cannot_be_replayed(cloud: MemoryCloud) -> None:
    found = letter(cloud, JOB_FAILED, TARGET_ARN=f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:react-former")
    assert (found.function, found.error) == (None, "no reason was given")
    assert found.obstacle is not None


def test_the_event_of_a_schedule_without_its_spec_cannot_be_replayed(cloud: MemoryCloud) -> None:
    arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:start-physical"
    found = letter(cloud, {"detail-type": "Scheduled Event", "detail": {}}, TARGET_ARN=arn)
    assert found.obstacle == "it lacks the spec, which the rule adds: launch the run yourself, then drop it"


def test_an_inbox_notification_that_sns_could_not_deliver_is_replayed_as_sns_calls_a_function(
    cloud: MemoryCloud,
) -> None:
    assert letter(cloud, NOTIFICATION).given_up_by is GivenUpBy.SNS
    replay(client_of(cloud), None)
    [(function, event)] = cloud.functions.accepted
    assert function == "start-physical"
    [record] = event["Records"]
    assert (record["EventSource"], record["EventSubscriptionArn"]) == ("aws:sns", f"arn:aws:sns:{REGION}:1:a")
    assert json.loads(record["Sns"]["Message"]) == RECORDS
    assert record["Sns"]["SigningCertUrl"] == NOTIFICATION["SigningCertURL"]


# --- list -------------------------------------------------------------------------------------------


def test_a_list_has_every_letter_the_oldest_first_and_leaves_them_where_they_are(cloud: MemoryCloud) -> None:
    ids = []
    for number in range(23):
        ids.append(send(cloud, {**TIMER, "run": f"night-{number}"}))
        cloud.clock.advance(1)
    for _ in range(2):
        found = list_letters(client_of(cloud), 100).letters
        assert [one.id for one in found] == ids
        assert [one.run for one in found] == [f"night-{number}" for number in range(23)]
        assert found[0].at == "2026-01-01T00:00:00.000Z"
    assert len(list_letters(client_of(cloud), 12).letters) == 12
    assert len(cloud.sqs.bodies) == 23


def test_letters_are_shown_again_if_the_queue_fails_before_all_are_read(cloud: MemoryCloud) -> None:
    for _ in range(12):
        send(cloud, TIMER)
    cloud.calls.inject(changed(server_error("ReceiveMessage"), skip=1))
    with pytest.raises(BusyError):
        list_letters(client_of(cloud), 100)
    assert len(list_letters(client_of(cloud), 100).letters) == 12


def test_a_stack_of_a_version_without_the_functions_names_is_told_to_deploy_again(cloud: MemoryCloud) -> None:
    send(cloud, TIMER)
    client = client_of(cloud)
    stack = client.stack
    vars(client.connection)["stack"] = changed(stack, function_names="")
    with pytest.raises(ForeignStackError, match=r"no output FunctionNames.*muster deploy"):
        list_letters(client, 10)
    vars(client.connection)["stack"] = changed(stack, dead_letter_url="")
    with pytest.raises(ForeignStackError, match="no output DeadLetterQueueUrl"):
        list_letters(client, 10)
    assert len(list_letters(client_of(cloud), 10).letters) == 1


# --- replay -----------------------------------------------------------------------------------------


def test_a_replay_calls_the_function_with_the_same_event_and_then_deletes_the_letter(cloud: MemoryCloud) -> None:
    first, second = send(cloud, JOB_FAILED), send(cloud, TIMER)
    answer = replay(client_of(cloud), [second])
    assert [one.id for one in answer.replayed] == [second]
    assert cloud.functions.accepted == [("timer-physical", TIMER)]
    assert [one.id for one in list_letters(client_of(cloud), 10).letters] == [first]
    order = [call.operation for call in cloud.calls.log]
    assert order.index("Invoke") < order.index("DeleteMessage")


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal("TooManyRequestsException", "Rate Exceeded.", 429),
        Refusal("AccessDeniedException", "no", 403),
        Refusal("ServiceException", "try again", 500),
    ],
)
def test_a_letter_stays_and_is_shown_if_lambda_does_not_accept_its_event(cloud: MemoryCloud, refusal: Refusal) -> None:
    sent = send(cloud, TIMER)
    cloud.calls.inject(Fault("Invoke", refusal))
    with pytest.raises(Exception, match="Invoke"):
        replay(client_of(cloud), None)
    assert [one.id for one in list_letters(client_of(cloud), 10).letters] == [sent]
    assert [one.id for one in replay(client_of(cloud), [sent]).replayed] == [sent]


def test_a_letter_whose_deletion_failed_is_replayed_again(cloud: MemoryCloud) -> None:
    send(cloud, TIMER)
    cloud.calls.inject(server_error("DeleteMessage"))
    with pytest.raises(Exception, match="DeleteMessage"):
        replay(client_of(cloud), None)
    replay(client_of(cloud), None)
    assert cloud.functions.accepted == [("timer-physical", TIMER)] * 2
    assert cloud.sqs.bodies == []


def test_a_lost_answer_of_a_deletion_deletes_the_letter(cloud: MemoryCloud) -> None:
    send(cloud, TIMER)
    cloud.calls.inject(lost_answer("DeleteMessage"))
    with pytest.raises(Exception, match="DeleteMessage"):
        replay(client_of(cloud), None)
    assert cloud.sqs.bodies == []


def test_what_cannot_be_replayed_is_kept_and_named(cloud: MemoryCloud) -> None:
    kept, good = send(cloud, "no JSON"), send(cloud, TIMER)
    answer = replay(client_of(cloud), None)
    assert [one.id for one in answer.replayed] == [good]
    assert [one.id for one in answer.kept] == [kept]
    assert cloud.sqs.bodies == ["no JSON"]


def test_an_id_that_is_not_there_is_refused_before_anything_is_replayed_or_dropped(cloud: MemoryCloud) -> None:
    sent = send(cloud, TIMER)
    for change in (replay, drop):
        with pytest.raises(UnknownDeadLetterError, match="no-such-letter"):
            change(client_of(cloud), [sent, "no-such-letter"])
    assert (len(cloud.sqs.bodies), cloud.functions.accepted) == (1, [])
    assert len(list_letters(client_of(cloud), 10).letters) == 1


# --- drop -------------------------------------------------------------------------------------------


def test_a_drop_deletes_what_it_names_and_calls_nothing(cloud: MemoryCloud) -> None:
    first, second = send(cloud, TIMER), send(cloud, "no JSON")
    assert [one.id for one in drop(client_of(cloud), [second]).dropped] == [second]
    assert [one.id for one in list_letters(client_of(cloud), 10).letters] == [first]
    assert [one.id for one in drop(client_of(cloud), None).dropped] == [first]
    assert (cloud.sqs.bodies, cloud.functions.accepted) == ([], [])
    assert drop(client_of(cloud), None).dropped == ()
