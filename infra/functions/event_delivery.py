"""How events reach the functions: the stack's bus, rules, and the queue for events that could not be handled."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

DELIVERY_HOURS = 6
DELIVERY_ATTEMPTS = 185  # EventBridge: the maximum; DELIVERY_HOURS is the limit that counts


class EventBus(Construct):
    """The bus for Muster's own events and for requests to start runs.

    It is separate from the account's default bus, so that no other rule is matched against these events and an IAM
    statement can name it.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.bus = events.EventBus(self, "Bus", description="Muster: runs and replicas")


class DeadLetters(Construct):
    """One queue for events that EventBridge could not deliver and for those that a function failed to handle.

    The workflow recovers from a lost event by itself when a wait times out; the queue shows why the event was lost.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.queue = sqs.Queue(
            self,
            "Queue",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),  # SQS: the maximum
        )
        # One statement for all rules. SQS: a policy has at most 20 statements and 8,192 bytes, and a target of the CDK
        # adds one of 400 bytes for each rule, unless it does not know that it owns the queue.
        self.as_target = sqs.Queue.from_queue_arn(self, "AsTarget", self.queue.queue_arn)
        self._rules: list[str] = []
        self._accepts = iam.PolicyStatement(
            sid="EventsOfRules",
            actions=["sqs:SendMessage"],
            principals=[iam.ServicePrincipal("events.amazonaws.com")],
            resources=[self.queue.queue_arn],
        )
        self.queue.add_to_resource_policy(self._accepts)

    def accept(self, rule: events.IRule) -> None:
        """Let EventBridge send what `rule` could not deliver."""
        self._rules.append(rule.rule_arn)
        self._accepts.add_condition("ArnEquals", {"aws:SourceArn": [*self._rules]})


@dataclass(frozen=True)
class RuleSettings:
    """A rule: events of `pattern` on `bus` (None: the account's default bus), or a `schedule`.

    `message` replaces the event in the call of the function.
    """

    construct_id: str
    description: str
    pattern: events.EventPattern | None = None
    schedule: events.Schedule | None = None
    message: events.RuleTargetInput | None = None
    bus: events.IEventBus | None = None


class EventRule(Construct):
    """Calls `function` for each event of a rule, with retries and a dead-letter queue."""

    def __init__(
        self, scope: Construct, rule: RuleSettings, *, function: lambda_.IFunction, dead_letters: DeadLetters
    ) -> None:
        super().__init__(scope, rule.construct_id)
        target = targets.LambdaFunction(
            function,
            event=rule.message,
            dead_letter_queue=dead_letters.as_target,
            max_event_age=Duration.hours(DELIVERY_HOURS),
            retry_attempts=DELIVERY_ATTEMPTS,
        )
        made = events.Rule(
            self,
            "Rule",
            description=rule.description,
            event_pattern=rule.pattern,
            schedule=rule.schedule,
            event_bus=rule.bus,
            targets=[target],
        )
        dead_letters.accept(made)
