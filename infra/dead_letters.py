"""Where events go that no function could take."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct


class DeadLetters(Construct):
    """One queue for events that EventBridge could not deliver and for those that a function failed on to the end.

    A lost event is repaired by re-arming; the queue is there to learn why it was lost.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),  # SQS: the longest
        )
