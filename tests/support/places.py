"""An embedded cloud with places, and what tests of its borders make there."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from muster.local import LocalCloud
from muster.options.places.local.place_settings import PlaceSettings, PlacesSettings
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, fast_settings

OREGON, TOKYO = "us-west-2", "ap-northeast-1"
HOME = "123456789012"
OTHER = "210987654321"
"""The account of Tokyo."""
Statement = dict[str, Any]
_ONCE = Config(retries={"total_max_attempts": 1}, read_timeout=10)


@contextmanager
def cloud_with_places(folder: Path, **changes: Any) -> Iterator[LocalCloud]:
    """A cloud with Oregon in the account of home, and Tokyo in another one."""
    places = {"oregon": PlaceSettings(region=OREGON), "tokyo": PlaceSettings(region=TOKYO, account_id=OTHER)}
    settings = fast_settings(services={"places": PlacesSettings(places=places)}, **changes)
    with LocalCloud.start(folder, settings) as running:
        yield running


def document(*statements: Statement) -> str:
    """A policy."""
    return json.dumps({"Version": "2012-10-17", "Statement": [*statements]})


def allow(actions: str | Sequence[str], resource: str | Sequence[str], **more: Any) -> dict[str, Any]:
    """A statement that allows something."""
    return {"Effect": "Allow", "Action": actions, "Resource": resource, **more}


def client(cloud: LocalCloud, service: str, region: str, credentials: Mapping[str, Any] | None = None) -> Any:
    """A client as a program in a place of `cloud` makes it for a region: its endpoint is the place's own.

    Without `credentials` its caller is the place's administrator. It tries every call once.
    """
    given = credentials or {
        "AccessKeyId": cloud.state.access_key_id,
        "SecretAccessKey": cloud.state.secret_access_key,
        "SessionToken": None,
    }
    return boto3.client(  # type: ignore[call-overload]
        service,
        region_name=region,
        aws_access_key_id=given["AccessKeyId"],
        aws_secret_access_key=given["SecretAccessKey"],
        aws_session_token=given["SessionToken"],
        config=_ONCE,
        **cloud.client_options(),
    )


def trusting(principal: Mapping[str, Any], *actions: str, **more: Any) -> dict[str, Any]:
    """A statement of a trust policy."""
    return {"Effect": "Allow", "Principal": principal, "Action": [*(actions or ("sts:AssumeRole",))], **more}


class Inbox:
    """A queue that gets the events of a rule on the default bus of a place."""

    def __init__(self, cloud: LocalCloud, pattern: Mapping[str, Any]) -> None:
        self._sqs, events, name = cloud.client("sqs"), cloud.client("events"), Workshop.name("inbox")
        self._url = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        asked = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        arn = asked["Attributes"]["QueueArn"]
        policy = document(allow("sqs:SendMessage", arn, Principal={"Service": "events.amazonaws.com"}))
        self._sqs.set_queue_attributes(QueueUrl=self._url, Attributes={"Policy": policy})
        events.put_rule(Name=name, EventPattern=json.dumps(pattern))
        events.put_targets(Rule=name, Targets=[{"Id": "inbox", "Arn": arn}])

    def received(self) -> list[dict[str, Any]]:
        """The events that have come since the last look."""
        messages = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10).get("Messages", [])
        for message in messages:
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return [json.loads(message["Body"]) for message in messages]

    def next(self) -> dict[str, Any]:
        """The first event that comes."""
        return wait_until("an event", self.received)[0]


def forward(cloud: LocalCloud, source: str, bus: str, *statements: Statement) -> None:
    """Send the events of `source` on the default bus of a place to another bus, by a role with these statements."""
    events, name = cloud.client("events"), Workshop.name("forward")
    trust = trusting({"Service": "events.amazonaws.com"})
    role = Workshop(cloud).make_role(statements, trust)
    events.put_rule(Name=name, EventPattern=json.dumps({"source": [source]}))
    events.put_targets(Rule=name, Targets=[{"Id": "bus", "Arn": bus, "RoleArn": role}])
