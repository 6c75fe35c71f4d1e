"""`muster deadletters`: what a letter says, and what becomes of it when it is replayed or dropped."""

import json
from dataclasses import replace as changed
from typing import Any

import pytest

from muster.client.client_errors import ClientError, ForeignStackError, UnknownDeadLetterError
from muster.client.runs.dead_letter import DeadLetter, GivenUpBy
from muster.client.runs.dead_letters import drop, list_letters, replay
from tests.memory import Fault, lost_answer, server_error
from tests.memory.calls import AwsError as Refusal
from tests.memory.cloud import ACCOUNT, REGION, MemoryCloud
from tests.support.memory_client import client_of

FUNCTIONS = ("react", "look", "stop", "sweep", "start", "notify", "timer", "scale")
TOKEN = "AQCsecret" * 30
JOB = {"detail-type": "SageMaker Training Job State Change", "source": "aws.sagemaker"}
JOB_FAILED = {
    **JOB,
    "detail": {"TrainingJobName": "muster-night-r3-a2", "TrainingJobStatus": "Failed", "SecondaryStatus": "Failed"},
}
TIMER = {"run": "night", "timer": "deadline"}
STEP = {"run": "night", "replicas": 4, "by": "schedule-0", "time": "2026-01-01T01:00:00.000Z"}


def cloud_with_functions() -> MemoryCloud:
    cloud = MemoryCloud()
    cloud.functions.names = {f"{name}-physical" for name in FUNCTIONS}
    return cloud


cloud = pytest.fixture(cloud_with_functions, name="cloud")


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


def through_sns(records: dict[str, Any]) -> dict[str, Any]:
    return {"Records": [{"Sns": {"Message": json.dumps(records)}}]}


RECORDS = {"Records": [{"s3": {"object": {"key": "inbox/bert.yaml", "eTag": "1"}}}]}
NOTICES = {"Records": [{"s3": {"object": {"key": "notices/night/end-r3-a2-pod-0-1.json"}}}]}
NOTIFICATION = {
    "Type": "Notification",
    "MessageId": "m",
    "TopicArn": f"arn:aws:sns:{REGION}:{ACCOUNT}:inbox",
    "Message": json.dumps(RECORDS),
    "Timestamp": "2026-01-01T00:00:00.000Z",
    "SigningCertURL": "https://sns.us-east-1.amazonaws.com/cert.pem",
    "UnsubscribeURL": f"https://sns.us-east-1.amazonaws.com/?Action=Unsubscribe&SubscriptionArn=arn:aws:sns:{REGION}:1:a",
}


SPEC = {"environment": {"KEY": "hunter2"}}
NODE = {"detail-type": "SageMaker HyperPod Cluster Node Health Event", "detail": {"ClusterName": "ml-cluster"}}
ENDED = {"detail-type": "Step Functions Execution Status Change", "detail": {"name": "night", "status": "ABORTED"}}
HOUR = {"detail-type": "Scheduled Event", "source": "aws.events", "detail": {}}
REQUESTED = {"detail-type": "Run Requested", "source": "mine", "detail": {"spec": SPEC}}
SCHEDULED = {"schedule": {"name": "nightly", "at": "2026-01-01T03:00:00Z", "spec": "environment: {KEY: hunter2}"}}
FAILED = {"detail-type": "Run Failed", "source": "muster", "detail": {"run": "night"}}
# The function and the run of each event, and words that say what it is.
LETTERS: list[tuple[Any, str | None, str | None, str]] = [
    (JOB_FAILED, "react", "night", "the training job muster-night-r3-a2: Failed Failed"),
    (through_sns(NOTICES), "look", "night", "a notice: notices/night/end-r3-a2-pod-0-1.json"),
    (NODE, "react", None, "SageMaker HyperPod Cluster Node Health Event: ml-cluster"),
    (ENDED, "stop", "night", "the execution night ended: ABORTED"),
    (HOUR, "sweep", None, "schedule of the"),
    (REQUESTED, "start", None, "Run Requested, from mine"),
    (SCHEDULED, "start", None, "the schedule nightly, due at 2026-01-01T03:00:00Z"),
    (through_sns(RECORDS), "start", None, "in the inbox: inbox/bert.yaml"),
    (FAILED, "notify", "night", "Run Failed of night"),
    (TIMER, "timer", "night", "the timer deadline of the run night"),
    (STEP, "scale", "night", "a scheduled step, due at 2026-01-01T01:00:00.000Z: 4 replicas of night"),
    ({"run": "night", "rank": 0, "token": TOKEN}, None, "night", "not known"),
    ("no JSON", None, None, "not known"),
    ("[]", None, None, "not known"),
]


def test_a_letter_of_lambda_names_the_function_that_its_event_is_for() -> None:
    for body, function, run, words in LETTERS:
        found = letter(cloud_with_functions(), body)
        assert (found.function, found.run, found.given_up_by) == (function, run, GivenUpBy.LAMBDA), body
        assert (words in found.event, found.error) == (True, "broken"), body
        assert (found.obstacle is None) == (function is not None), body


def test_a_letter_shows_neither_task_tokens_nor_the_content_of_an_event(cloud: MemoryCloud) -> None:
    body = {"run": "night", "token": TOKEN, "spec": {"environment": {"KEY": "hunter2"}}}
    found = letter(cloud, body, ErrorMessage=f"the token {TOKEN} is not valid")
    assert found.error == "the token (task token) is not valid"
    assert TOKEN not in found.to_line()
    assert "hunter2" not in found.to_line()


def test_a_letter_of_eventbridge_names_the_target_of_its_rule(cloud: MemoryCloud) -> None:
    arn = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:"
    why = {"RULE_ARN": "arn:aws:events:::rule/JobEvents", "ERROR_CODE": "NO_PERMISSIONS", "ERROR_MESSAGE": "denied"}
    found = letter(cloud, JOB_FAILED, TARGET_ARN=f"{arn}react-physical:live", **why)
    assert (found.function, found.given_up_by) == ("react", GivenUpBy.EVENTBRIDGE)
    assert found.error == "NO_PERMISSIONS: denied"
    # A target that the stack no longer has, and an event of a schedule without the spec that its rule adds.
    former = letter(cloud_with_functions(), JOB_FAILED, TARGET_ARN=f"{arn}react-former")
    assert (former.function, former.error, former.obstacle is None) == (None, "no reason was given", False)
    bare = letter(
        cloud_with_functions(), {"detail-type": "Scheduled Event", "detail": {}}, TARGET_ARN=f"{arn}start-physical"
    )
    assert str(bare.obstacle).startswith("it lacks the spec")


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


def test_a_notice_of_a_stack_without_clusters_is_replayed_to_react(cloud: MemoryCloud) -> None:
    """Its places have brought it: the queue of notices, or SNS before it."""
    cloud.functions.names -= {"look-physical"}
    missing = {"Records": [{"s3": {"object": {"key": "notices/night/missing-r3-7.json"}}}]}
    found = letter(cloud, {**NOTIFICATION, "Message": json.dumps(missing)})
    assert (found.function, found.run, found.obstacle) == ("react", "night", None)
    replay(client_of(cloud), None)
    [(function, event)] = cloud.functions.accepted
    assert function == "react-physical"
    assert json.loads(event["Records"][0]["Sns"]["Message"]) == missing


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


def test_a_stack_of_a_version_without_the_functions_names_is_told_to_deploy_again(cloud: MemoryCloud) -> None:
    send(cloud, TIMER)
    client = client_of(cloud)
    stack = client.stack
    for output, name in (("function_names", "FunctionNames"), ("dead_letter_url", "DeadLetterQueueUrl")):
        vars(client.connection)["stack"] = changed(stack, **{output: ""})
        with pytest.raises(ForeignStackError, match=rf"{name}.*muster deploy"):
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


def test_a_letter_stays_and_is_shown_if_lambda_does_not_accept_its_event() -> None:
    for code, status in (("TooManyRequestsException", 429), ("AccessDeniedException", 403), ("ServiceException", 500)):
        cloud = cloud_with_functions()
        sent = send(cloud, TIMER)
        cloud.calls.inject(Fault("Invoke", Refusal(code, "no", status)))
        with pytest.raises(ClientError, match="Invoke"):
            replay(client_of(cloud), None)
        assert [one.id for one in list_letters(client_of(cloud), 10).letters] == [sent], code
        assert [one.id for one in replay(client_of(cloud), [sent]).replayed] == [sent], code


def test_a_letter_whose_deletion_failed_is_replayed_again() -> None:
    # Where only the answer of the deletion was lost, the letter is gone.
    for fault, calls in ((server_error("DeleteMessage"), 2), (lost_answer("DeleteMessage"), 1)):
        cloud = cloud_with_functions()
        send(cloud, TIMER)
        cloud.calls.inject(fault)
        with pytest.raises(ClientError, match="DeleteMessage"):
            replay(client_of(cloud), None)
        replay(client_of(cloud), None)
        assert (cloud.functions.accepted, cloud.sqs.bodies) == ([("timer-physical", TIMER)] * calls, [])


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
