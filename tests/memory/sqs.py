"""SQS: one standard queue. A message that is received is hidden for a time, and comes again unless it is deleted."""

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.memory.calls import Operation, Parameters, refuse
from tests.memory.clock import VirtualClock

_HIDDEN_SECONDS = 30  # the default of a queue
_HIDDEN_SECONDS_MAX = 43_200
_RECEIVED_MAX = 10


@dataclass
class _Message:
    id: str
    body: str
    attributes: Mapping[str, Any]
    sent_at: datetime
    visible_at: datetime
    receipts: set[str] = field(default_factory=set)


class Sqs:
    """A queue, whatever its URL."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._messages: list[_Message] = []
        self.operations = {
            "SendMessage": Operation(self._send, {"QueueUrl", "MessageBody", "MessageAttributes"}),
            "ReceiveMessage": Operation(
                self._receive,
                {
                    *("QueueUrl", "MaxNumberOfMessages", "WaitTimeSeconds", "VisibilityTimeout"),
                    *("MessageSystemAttributeNames", "MessageAttributeNames"),
                },
            ),
            "DeleteMessage": Operation(self._delete, {"QueueUrl", "ReceiptHandle"}),
            "ChangeMessageVisibility": Operation(self._change, {"QueueUrl", "ReceiptHandle", "VisibilityTimeout"}),
        }

    @property
    def bodies(self) -> list[str]:
        """What is in the queue, hidden or not."""
        return [message.body for message in self._messages]

    def _send(self, request: Parameters) -> dict[str, Any]:
        if not request["MessageBody"]:
            refuse("MissingParameter", "The request must contain the parameter MessageBody.")
        now = self._clock.now()
        with self._lock:
            name = f"{next(self._numbers):08}-0000-4000-8000-000000000000"
            attributes = request.get("MessageAttributes", {})
            self._messages.append(_Message(name, request["MessageBody"], attributes, now, now))
        return {"MessageId": name, "MD5OfMessageBody": ""}

    def _receive(self, request: Parameters) -> dict[str, Any]:
        if not 1 <= (limit := request.get("MaxNumberOfMessages", 1)) <= _RECEIVED_MAX:
            refuse("InvalidParameterValue", "MaxNumberOfMessages must be between 1 and 10.")
        with self._lock:
            visible = [one for one in self._messages if one.visible_at <= self._clock.now()][:limit]
            if not visible:
                return {}
            for message in visible:
                self._hide(message, request.get("VisibilityTimeout", _HIDDEN_SECONDS))
                message.receipts.add(f"{message.id}/{next(self._numbers)}")
            return {"Messages": [self._received(message, request) for message in visible]}

    @staticmethod
    def _received(message: _Message, request: Parameters) -> dict[str, Any]:
        found: dict[str, Any] = {
            "MessageId": message.id,
            "ReceiptHandle": max(message.receipts),
            "Body": message.body,
        }
        # Only what is asked for.
        if "SentTimestamp" in request.get("MessageSystemAttributeNames", ()):
            found["Attributes"] = {"SentTimestamp": str(int(message.sent_at.timestamp() * 1000))}
        if message.attributes and "All" in request.get("MessageAttributeNames", ()):
            found["MessageAttributes"] = dict(message.attributes)
        return found

    def _delete(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            # A message that is gone already is deleted, too.
            self._messages = [one for one in self._messages if request["ReceiptHandle"] not in one.receipts]
        return {}

    def _change(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            for message in self._messages:
                if request["ReceiptHandle"] in message.receipts:
                    self._hide(message, request["VisibilityTimeout"])
        return {}

    def _hide(self, message: _Message, seconds: int) -> None:
        if not 0 <= seconds <= _HIDDEN_SECONDS_MAX:
            refuse("InvalidParameterValue", "VisibilityTimeout must be between 0 and 43200.")
        message.visible_at = self._clock.now() + timedelta(seconds=seconds)
