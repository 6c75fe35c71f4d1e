"""Notify: the ends of runs, told to people."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.event_rule import EventRule
from infra.handler_function import HandlerFunction, HandlerSettings
from muster.contract.run.run_events import SOURCE, QuorumLost, RunFailed, RunRefused, RunRerun, RunStopped, RunSucceeded

_TOLD = (QuorumLost, RunSucceeded, RunFailed, RunStopped, RunRerun, RunRefused)


class NotifyFunction(Construct):
    """A topic for people, and the function that writes to it: EventBridge alone could set neither subject nor lines."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: HandlerSettings, email: str | None) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "People", display_name="Muster")
        if email is not None:
            # SNS asks the address whether it wants this.
            self.topic.add_subscription(subscriptions.EmailSubscription(email))
        self.function = HandlerFunction(
            self,
            "Handler",
            name="notify",
            description="Muster: tells people of the ends of runs",
            settings=settings,
            timeout=Duration.seconds(30),
            memory_mb=256,
            environment={"MUSTER_TOPIC_ARN": self.topic.topic_arn},
            statements=[iam.PolicyStatement(actions=["sns:Publish"], resources=[self.topic.topic_arn])],
        ).function
        EventRule(
            self,
            "Ends",
            description="Muster: what people are told",
            bus=settings.bus,
            pattern=events.EventPattern(source=[SOURCE], detail_type=[event.detail_type for event in _TOLD]),
            function=self.function,
            dead_letters=settings.dead_letters,
        )
