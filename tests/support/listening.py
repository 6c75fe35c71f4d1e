"""A consumer of the stack's events: a queue behind a rule on the bus, as a user would set one up."""

from __future__ import annotations

import itertools
import json
from typing import Any

from muster.contract.run.run_events import SOURCE
from tests.support.deployed import Deployed
from tests.support.waiting import wait_until

_names = itertools.count(1)


class Listener:
    """Receives every event of Muster from now on."""

    def __init__(self, stack: Deployed) -> None:
        self._sqs = stack.cloud.client("sqs")
        events, name, bus = stack.cloud.client("events"), f"listener-{next(_names)}", stack.outputs["EventBusName"]
        self._queue = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])["Attributes"][
            "QueueArn"
        ]
        policy = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage"}
        document = {"Version": "2012-10-17", "Statement": [{**policy, "Resource": arn}]}
        self._sqs.set_queue_attributes(QueueUrl=self._queue, Attributes={"Policy": json.dumps(document)})
        events.put_rule(Name=name, EventBusName=bus, EventPattern=json.dumps({"source": [SOURCE]}))
        events.put_targets(Rule=name, EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn}])
        self.heard: list[dict[str, Any]] = []

    def events(self, detail_type: str, **detail: object) -> list[dict[str, Any]]:
        """The details, up to now, of the events of a type whose detail has these values."""
        answer = self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            self.heard.append(json.loads(message["Body"]))
            self._sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])
        return [
            event["detail"]
            for event in self.heard
            if event["detail-type"] == detail_type and detail.items() <= event["detail"].items()
        ]

    def wait(self, detail_type: str, **detail: object) -> dict[str, Any]:
        """The first such event's detail, once it has arrived."""
        return wait_until(f"{detail_type} {detail}", lambda: self.events(detail_type, **detail))[0]
