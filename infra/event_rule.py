"""A rule that wakes a function of ours, with patience and a place for what could not be delivered."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

DELIVERY_HOURS = 6
DELIVERY_ATTEMPTS = 185  # EventBridge: the most; the hours are the bound


class EventRule(Construct):
    """Events of `pattern` on `bus` (None: the account's own), or the ticks of `schedule`, go to `function`.

    `message` replaces what the function is sent.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        description: str,
        function: lambda_.IFunction,
        dead_letters: sqs.IQueue,
        pattern: events.EventPattern | None = None,
        schedule: events.Schedule | None = None,
        message: events.RuleTargetInput | None = None,
        bus: events.IEventBus | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        events.Rule(
            self,
            "Rule",
            description=description,
            event_pattern=pattern,
            schedule=schedule,
            event_bus=bus,
            targets=[
                targets.LambdaFunction(
                    function,
                    event=message,
                    dead_letter_queue=dead_letters,
                    max_event_age=Duration.hours(DELIVERY_HOURS),
                    retry_attempts=DELIVERY_ATTEMPTS,
                )
            ],
        )
