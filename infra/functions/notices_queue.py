"""Between the topic of notices and the function that looks: a queue, so that they take a bounded share of the account.

Whoever has a replica's rights may write any number of notices. A topic would call the function for all of them at once,
and the functions of an account share its concurrency. A reservation of some of it would be refused in an account that
has no more than AWS wants left unreserved, such as a new one. The limit of a queue's calls takes nothing from others.
"""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs
from constructs import Construct

CALLS_MAX = 5
"""How many calls handle notices at a time: half of what a new account may run at all."""
BATCH = 10  # Lambda: the most messages of a call for which it does not wait
_DELIVERIES = 5  # Lambda: fewer, and calls that are throttled for a while make dead letters
_HOURS = 1  # by then the re-arm has seen what an older notice is about


class NoticesQueue(Construct):
    """The queue of the notices that `topic` brings; `timeout_seconds` is that of the function that handles them."""

    def __init__(
        self, scope: Construct, construct_id: str, *, topic: sns.ITopic, dead_letters: sqs.IQueue, timeout_seconds: int
    ) -> None:
        super().__init__(scope, construct_id)
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.hours(_HOURS),
            visibility_timeout=Duration.seconds(timeout_seconds),  # Lambda: at least the function's
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letters, max_receive_count=_DELIVERIES),
        )
        topic.add_subscription(subscriptions.SqsSubscription(self.queue, dead_letter_queue=dead_letters))

    def call(self, function: lambda_.IFunction) -> None:
        """Let `function` handle the notices. What it may do with the queue stands in its row of the table."""
        lambda_.EventSourceMapping(
            self,
            "Calls",
            target=function,
            event_source_arn=self.queue.queue_arn,
            batch_size=BATCH,
            max_concurrency=CALLS_MAX,
        )
