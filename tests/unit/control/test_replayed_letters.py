"""A dead letter that is replayed twice has the effect of one, for every function that gets events."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from muster.client.runs.dead_letters import replay
from muster.contract.spec.run_limits import Timer
from tests.memory.cloud import ACCOUNT, REGION
from tests.memory.harness import RUN, SPEC, ControlHarness
from tests.support.control_steps import AGAIN, Row, launched
from tests.support.handlers import loader
from tests.support.memory_client import client_of

# The filter of muster.control.runtime.function, which pytest resets: most events change no metric.
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


def job_failed(harness: ControlHarness) -> dict[str, Any]:
    # With a wait before the rerun: the end is written at once, and not by the launch.
    launched(harness, reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 60}})
    harness.cloud.training.fail(harness.job(), AGAIN)
    return harness.cloud.notifications.drain()[-1]


def execution_stopped(harness: ControlHarness) -> dict[str, Any]:
    launched(harness)
    harness.cloud.client("stepfunctions").stop_execution(executionArn=harness.cloud.workflow.execution_arn(RUN))
    return harness.cloud.notifications.drain()[-1]


def sweep_due(harness: ControlHarness) -> dict[str, Any]:
    execution_stopped(harness)
    return {"detail-type": "Scheduled Event", "source": "aws.events", "detail": {}}


def run_requested(_: ControlHarness) -> dict[str, Any]:
    event = {"version": "0", "id": "request-1", "detail-type": "Run Requested", "source": "mine", "account": ACCOUNT}
    return {**event, "time": "2026-01-01T00:00:00Z", "region": REGION, "resources": [], "detail": {"spec": SPEC}}


def run_due(_: ControlHarness) -> dict[str, Any]:
    return {"schedule": {"name": "nightly", "at": "2026-01-01T02:00:00Z", "spec": json.dumps(SPEC)}}


def object_in_inbox(harness: ControlHarness) -> dict[str, Any]:
    key = "inbox/bert.json"
    stored = harness.cloud.client("s3").put_object(Bucket="bucket", Key=key, Body=json.dumps(SPEC).encode())
    message = json.dumps({"Records": [{"s3": {"object": {"key": key, "eTag": stored["ETag"].strip('"')}}}]})
    topic, url = f"arn:aws:sns:{REGION}:{ACCOUNT}:inbox", "https://sns.us-east-1.amazonaws.com/"
    links = {"SigningCertURL": url, "UnsubscribeURL": f"{url}?Action=Unsubscribe&SubscriptionArn={topic}:1"}
    signed = {"Timestamp": "2026-01-01T00:00:00.000Z", "SignatureVersion": "1", "Signature": "c2ln", **links}
    # What SNS itself gives up has the form of its notifications.
    return {"Type": "Notification", "MessageId": "1", "TopicArn": topic, "Subject": "S3", "Message": message, **signed}


def deadline_due(harness: ControlHarness) -> dict[str, Any]:
    launched(harness, deadline_seconds=60)
    return {"run": RUN, "timer": Timer.DEADLINE.value}


def run_failed(_: ControlHarness) -> dict[str, Any]:
    detail = {"run": RUN, "reason": "lost", "result": "s3://bucket/control/one/result.json"}
    return {"detail-type": "Run Failed", "source": "muster", "detail": detail}


def state_of(harness: ControlHarness) -> Any:
    """All that outlasts a call: objects, jobs, executions, events; not the messages to people."""
    objects = harness.cloud.s3.objects(harness.cloud.bucket)
    jobs = [harness.cloud.training.names(status) for status in ("InProgress", "Stopping", "Stopped", "Failed")]
    return objects, jobs, harness.executions.live_runs(), harness.emitted()


LETTERS: tuple[tuple[str, Callable[[ControlHarness], dict[str, Any]]], ...] = (
    ("react", job_failed),
    ("stop", execution_stopped),
    ("sweep", sweep_due),
    ("start", run_requested),
    ("start", run_due),
    ("start", object_in_inbox),
    ("timer", deadline_due),
    ("notify", run_failed),
)


def test_a_dead_letter_that_is_replayed_twice_has_the_effect_of_one(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    for function, letter in LETTERS:
        with row(f"{function}: {letter.__name__}") as harness:
            body, cloud = json.dumps(letter(harness)), harness.cloud
            cloud.functions.names = {f"{name}-physical" for name, _ in LETTERS}
            # Two copies: SQS delivers at least once, and a deletion may fail after Lambda has accepted the event.
            for _ in range(2):
                cloud.client("sqs").send_message(QueueUrl="https://sqs/letters", MessageBody=body)
            assert len(replay(client_of(cloud), None).replayed) == 2
            handler, states = loader(harness, monkeypatch)(function), []
            before = state_of(harness)
            for called, event in cloud.functions.accepted:
                assert called == f"{function}-physical"
                handler(event)
                cloud.clock.advance(300)
                states.append(state_of(harness))
            assert states[0] == states[1]
            # People may be told twice; nothing else happens there.
            assert (states[0] == before) == (function == "notify")
            assert len(cloud.sns.messages) == (2 if function == "notify" else 0)
