"""Calls to SQS and Lambda: the stack's dead-letter queue, and the functions that its messages are for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.client.aws.connection import Connection
from muster.client.aws.error_translation import translated
from muster.client.client_errors import ClientError

LISTED_MAX = 100
"""How many messages are listed where a caller names no number."""
HOLD_SECONDS = 300
"""How long SQS hides a message that was received, unless it is released before."""
_BATCH = 10  # SQS: messages of a ReceiveMessage
_WAIT_SECONDS = 1  # with a wait SQS asks all its servers; without one it may miss messages


@dataclass(frozen=True)
class QueueMessage:
    """A message that was received: hidden from others until it is released or deleted."""

    id: str
    receipt: str
    body: str
    sent_at_milliseconds: int
    attributes: Mapping[str, str]


class DeadLetterQueue:
    """The stack's dead-letter queue."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def receive(self, limit: int) -> list[QueueMessage]:
        """At most `limit` messages that no other client is reading. Each is hidden for HOLD_SECONDS."""
        found: dict[str, QueueMessage] = {}
        try:
            # SQS delivers at least once: a message may come twice.
            while new := [one for one in self._received(limit - len(found)) if one.id not in found]:
                found |= {message.id: message for message in new}
        except ClientError:
            self.release(list(found.values()))
            raise
        return list(found.values())

    def _received(self, limit: int) -> Iterator[QueueMessage]:
        if limit > 0:
            with translated():
                answer = self._connection.sqs.receive_message(
                    QueueUrl=self._connection.stack.dead_letters,
                    MaxNumberOfMessages=min(_BATCH, limit),
                    WaitTimeSeconds=_WAIT_SECONDS,
                    VisibilityTimeout=HOLD_SECONDS,
                    MessageSystemAttributeNames=["SentTimestamp"],
                    MessageAttributeNames=["All"],
                )
            yield from map(_message, answer.get("Messages", []))

    def release(self, messages: Sequence[QueueMessage]) -> None:
        """Show the messages to others again."""
        for message in messages:
            with translated():
                self._connection.sqs.change_message_visibility(
                    QueueUrl=self._connection.stack.dead_letters, ReceiptHandle=message.receipt, VisibilityTimeout=0
                )

    def delete(self, message: QueueMessage) -> None:
        """Delete a message that was received."""
        with translated():
            self._connection.sqs.delete_message(
                QueueUrl=self._connection.stack.dead_letters, ReceiptHandle=message.receipt
            )

    def invoke(self, function: str, payload: str) -> None:
        """Let Lambda invoke a function with `payload`: it has accepted the event, which it retries like any other."""
        with translated():
            self._connection.functions.invoke(FunctionName=function, InvocationType="Event", Payload=payload.encode())


def _message(item: Mapping[str, Any]) -> QueueMessage:
    attributes = item.get("MessageAttributes", {})
    return QueueMessage(
        id=item["MessageId"],
        receipt=item["ReceiptHandle"],
        body=item["Body"],
        sent_at_milliseconds=int(item["Attributes"]["SentTimestamp"]),
        attributes={name: value.get("StringValue", "") for name, value in attributes.items()},
    )
