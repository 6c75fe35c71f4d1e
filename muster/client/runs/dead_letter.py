"""What a message in the dead-letter queue says: which event, for which function, why it was given up. Pure.

Four services put messages there. Lambda sends the event as the function got it, and does not name the function.
EventBridge names the rule's target. SNS sends the notification of the inbox, or of a notice, as the topic got it, and
so does the queue of notices.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pydantic import Field

from muster.client.aws.dead_letter_queue import QueueMessage
from muster.contract import timestamps
from muster.contract.document import Document, json_object
from muster.contract.names import JobName, run_name
from muster.contract.run.notices import NOTICES, Notice
from muster.contract.run.run_events import RUN_REQUESTED, SCALE_REQUESTED, SOURCE

_JOB_EVENT = "SageMaker Training Job State Change"
_CLUSTER_EVENTS = "SageMaker HyperPod Cluster"
_EXECUTION_EVENT = "Step Functions Execution Status Change"
_SCHEDULED_EVENT = "Scheduled Event"
_HIDDEN = "(task token)"


class GivenUpBy(StrEnum):
    """Which service gave the event up."""

    LAMBDA = "lambda"
    EVENTBRIDGE = "eventbridge"
    SNS = "sns"


class DeadLetter(Document):
    """An event that a function of the stack did not handle."""

    id: str = Field(description="the message's id in the queue")
    at: timestamps.Timestamp = Field(description="when it came into the queue")
    function: str | None = Field(description="the function that should have handled it; null if that is not known")
    event: str = Field(description="the event, in words; its content is not shown, because it may hold secrets")
    run: str | None = Field(description="the run that the event is about; null if it names none")
    given_up_by: GivenUpBy = Field(
        description="lambda: the function failed each time; eventbridge, sns: the function could not be called, or it "
        "failed each time with a notice of a replica"
    )
    error: str = Field(description="why, in the words of that service or of the function")
    obstacle: str | None = Field(description="why the event cannot be replayed; null if it can be")


@dataclass(frozen=True)
class ReadLetter:
    """A dead letter, and what a replay calls: the function's physical name with a payload."""

    letter: DeadLetter
    function: str = ""
    payload: str = ""


@dataclass(frozen=True)
class _Event:
    """What an event is, for which function, and about which run."""

    function: str | None
    text: str
    run: str | None = None


def read_letter(message: QueueMessage, functions: Mapping[str, str], prefix: str) -> ReadLetter:
    """The letter in `message`.

    Args:
        message: as SQS delivered it.
        functions: the physical names of the stack's functions by their names.
        prefix: the stack's job prefix.
    """
    body = json_object(message.body)
    given_up_by = _given_up_by(message, body)
    if given_up_by is GivenUpBy.SNS:
        body = _as_invocation(body)
    event = _event(body, prefix)
    known = _target(message, functions) if given_up_by is GivenUpBy.EVENTBRIDGE else event.function
    # A stack with places and without clusters has no function that looks: its queue of notices calls react.
    function = "react" if known == "look" and known not in functions else known
    letter = DeadLetter(
        id=message.id,
        at=timestamps.from_epoch_milliseconds(message.sent_at_milliseconds),
        function=function,
        event=event.text,
        run=event.run,
        given_up_by=given_up_by,
        error=_error(message, body),
        obstacle=_obstacle(body, function, functions),
    )
    if letter.obstacle is not None or function is None:
        return ReadLetter(letter)
    payload = message.body if given_up_by is not GivenUpBy.SNS else json.dumps(body)
    return ReadLetter(letter, functions[function], payload)


def _given_up_by(message: QueueMessage, body: Mapping[str, Any]) -> GivenUpBy:
    if "TARGET_ARN" in message.attributes:
        return GivenUpBy.EVENTBRIDGE
    if body.get("Type") == "Notification" and "TopicArn" in body:
        return GivenUpBy.SNS
    return GivenUpBy.LAMBDA


def _target(message: QueueMessage, functions: Mapping[str, str]) -> str | None:
    """The function that a rule could not call. The ARN ends with the function's name, or with one of its versions."""
    named = message.attributes["TARGET_ARN"].partition(":function:")[2].partition(":")[0]
    return next((name for name, physical in functions.items() if physical == named), None)


def _error(message: QueueMessage, body: Mapping[str, Any]) -> str:
    attributes = message.attributes
    code = attributes.get("ERROR_CODE", "")
    text = attributes.get("ErrorMessage") or attributes.get("ERROR_MESSAGE") or "no reason was given"
    token = body.get("token")
    if isinstance(token, str) and token:
        text = text.replace(token, _HIDDEN)
    return f"{code}: {text}" if code else text


def _obstacle(body: Mapping[str, Any], function: str | None, functions: Mapping[str, str]) -> str | None:
    if function is None:
        return "no function of the stack handles such an event: drop it"
    if function not in functions:
        return f"the stack names no function {function}: deploy the stack again"
    if function == "start" and body.get("detail-type") == _SCHEDULED_EVENT:
        return "it lacks the spec, which the rule adds: launch the run yourself, then drop it"
    return None


def _event(body: Mapping[str, Any], prefix: str) -> _Event:
    """What the event is. Only what the stack's own rules, timers and topic send is known."""
    if "detail-type" in body:
        return _bus_event(str(body["detail-type"]), body, prefix)
    if "schedule" in body:
        schedule = _part(body, "schedule")
        return _Event("start", f"a run of the schedule {schedule.get('name')}, due at {schedule.get('at')}")
    if "Records" in body:
        return _object_event(_object_keys(body))
    if "timer" in body and "run" in body:
        return _Event("timer", f"the timer {body['timer']} of the run {body['run']}", str(body["run"]))
    if {"run", "replicas", "by"} <= body.keys():
        text = f"a scheduled step, due at {body.get('time')}: {body['replicas']} replicas of {body['run']}"
        return _Event("scale", text, str(body["run"]))
    run = body.get("run")
    return _Event(None, "an event that is not known", run if isinstance(run, str) else None)


def _bus_event(kind: str, body: Mapping[str, Any], prefix: str) -> _Event:  # noqa: PLR0911 - one for each kind
    detail = _part(body, "detail")
    if kind == _JOB_EVENT:
        job = str(detail.get("TrainingJobName"))
        name = JobName.parse(job, prefix)
        status = " ".join(str(detail[key]) for key in ("TrainingJobStatus", "SecondaryStatus") if key in detail)
        return _Event("react", f"the training job {job}: {status}", None if name is None else name.run)
    if kind.startswith(_CLUSTER_EVENTS):
        cluster = detail.get("ClusterName") or str(detail.get("ClusterArn", "")).rpartition("/")[2] or "not named"
        return _Event("react", f"{kind}: {cluster}")
    if kind == _EXECUTION_EVENT:
        execution = str(detail.get("name"))
        return _Event("stop", f"the execution {execution} ended: {detail.get('status')}", run_name(execution))
    if kind == _SCHEDULED_EVENT:
        return _Event("sweep", "the schedule of the sweep")
    if kind == RUN_REQUESTED:
        return _Event("start", f"{RUN_REQUESTED}, from {body.get('source')}")
    run = detail.get("run")
    named = run if isinstance(run, str) else None
    if kind == SCALE_REQUESTED:
        return _Event("scale", f"{kind}: {detail.get('replicas')} replicas of {named}", named)
    return _Event("notify" if body.get("source") == SOURCE else None, f"{kind}{f' of {named}' if named else ''}", named)


def _object_event(keys: list[str]) -> _Event:
    """What S3's notification of new objects is: of notices, or of specs in the inbox."""
    if keys and all(key.startswith(NOTICES) for key in keys):
        notice = Notice.parse(keys[0])
        return _Event("look", f"a notice: {', '.join(keys)}", None if notice is None else notice.run)
    return _Event("start", f"a spec in the inbox: {', '.join(keys) or 'no object is named'}")


def _as_invocation(notification: Mapping[str, Any]) -> dict[str, Any]:
    """The event with which SNS calls a function, made of the notification that it could not deliver."""
    renamed = {"SigningCertURL": "SigningCertUrl", "UnsubscribeURL": "UnsubscribeUrl"}
    fields = {renamed.get(name, name): value for name, value in notification.items()}
    [subscription] = parse_qs(urlsplit(str(fields.get("UnsubscribeUrl"))).query).get("SubscriptionArn", [""])
    record = {"EventSource": "aws:sns", "EventVersion": "1.0", "EventSubscriptionArn": subscription}
    return {"Records": [{**record, "Sns": {"MessageAttributes": {}, **fields}}]}


def _part(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    return found if isinstance(found, dict) else {}


def _object_keys(body: Mapping[str, Any]) -> list[str]:
    """The keys of the objects that S3's notifications name."""
    records = [json_object(str(_part(record, "Sns").get("Message"))) for record in _records(body)]
    return [str(_part(_part(item, "s3"), "object").get("key")) for record in records for item in _records(record)]


def _records(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = body.get("Records")
    return [record for record in found if isinstance(record, dict)] if isinstance(found, list) else []
