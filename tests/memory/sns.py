"""SNS: every message that was published."""

import threading
from typing import Any, NamedTuple

from tests.memory.calls import Operation, Parameters, refuse

_SUBJECT_MAX = 100
_MESSAGE_BYTES_MAX = 262_144


class Message(NamedTuple):
    """A message to a topic's subscribers."""

    topic_arn: str
    subject: str | None
    text: str


class Sns:
    """The topics of an account: any that is named."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.messages: list[Message] = []
        """In order."""
        self.operations = {"Publish": Operation(self._publish, {"TopicArn", "Subject", "Message"})}

    def _publish(self, request: Parameters) -> dict[str, Any]:
        subject, text = request.get("Subject"), request["Message"]
        if subject is not None and not _is_subject(subject):
            refuse("InvalidParameter", "Invalid parameter: Subject")
        if not text or len(text.encode()) > _MESSAGE_BYTES_MAX:
            refuse("InvalidParameter", f"Invalid parameter: Message {'too long' if text else 'is empty'}")
        with self._lock:
            self.messages.append(Message(request["TopicArn"], subject, text))
            return {"MessageId": f"{len(self.messages):08}-0000-4000-8000-000000000000"}


def _is_subject(subject: str) -> bool:
    return 0 < len(subject) <= _SUBJECT_MAX and subject.isascii() and subject.isprintable()
