"""Who hears of a stack, as a user would set it up: a queue behind its bus, and one behind its topic for people."""

import itertools
import json
from typing import Any

from muster.contract.run.run_events import SOURCE
from tests.support.deployed import Deployed
from tests.support.waiting import wait_until

_names = itertools.count(1)


class _Queue:
    """A queue into which a service may put messages."""

    def __init__(self, stack: Deployed, service: str) -> None:
        self._sqs = stack.cloud.client("sqs")
        self.name = f"listener-{next(_names)}"
        self._url = self._sqs.create_queue(QueueName=self.name)["QueueUrl"]
        answer = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        self.arn = answer["Attributes"]["QueueArn"]
        principal = {"Service": f"{service}.amazonaws.com"}
        statement = {"Effect": "Allow", "Principal": principal, "Action": "sqs:SendMessage", "Resource": self.arn}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self._sqs.set_queue_attributes(QueueUrl=self._url, Attributes={"Policy": policy})
        self.heard: list[dict[str, Any]] = []

    def look(self) -> None:
        """Take what has arrived."""
        answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            self.heard.append(json.loads(message["Body"]))
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])


class Listener(_Queue):
    """Hears every event of Muster on the stack's bus from now on."""

    def __init__(self, stack: Deployed) -> None:
        super().__init__(stack, "events")
        events, bus = stack.cloud.client("events"), stack.outputs["EventBusName"]
        events.put_rule(Name=self.name, EventBusName=bus, EventPattern=json.dumps({"source": [SOURCE]}))
        events.put_targets(Rule=self.name, EventBusName=bus, Targets=[{"Id": "queue", "Arn": self.arn}])

    def events(self, detail_type: str, **detail: object) -> list[dict[str, Any]]:
        """The details, up to now, of the events of a type whose detail has these values."""
        self.look()
        found = [event["detail"] for event in self.heard if event["detail-type"] == detail_type]
        return [one for one in found if detail.items() <= one.items()]

    def wait(self, detail_type: str, **detail: object) -> dict[str, Any]:
        """The first such event's detail, once it has arrived."""
        return wait_until(f"{detail_type} {detail}", lambda: self.events(detail_type, **detail))[0]


class People(_Queue):
    """Are told what the stack publishes to its topic from now on."""

    def __init__(self, stack: Deployed) -> None:
        super().__init__(stack, "sns")
        topic = stack.outputs["NotificationTopicArn"]
        stack.cloud.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=self.arn)

    def wait(self, subject: str) -> str:
        """The message whose subject has these words, once it has arrived."""

        def told() -> str | None:
            self.look()
            return next((one["Message"] for one in self.heard if subject in one["Subject"]), None)

        return wait_until(f"the message {subject!r}", told)
