"""A function of the control plane: its log group, its role, its bounded retries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.expiring_log_group import ExpiringLogGroup
from muster.contract.aws.metric_names import NAMESPACE, function_service

ASYNC_RETRIES = 2  # Lambda: the most it does for an asynchronous event
ASYNC_EVENT_HOURS = 6  # Lambda: the longest it keeps one


@dataclass(frozen=True)
class HandlerSettings:
    """What all functions of a stack have in common."""

    code: lambda_.Code
    dead_letters: sqs.IQueue
    bus: events.IEventBus
    log_retention_days: int
    environment: Mapping[str, str]


class HandlerFunction(Construct):
    """`lambdas.{name}.handler` under a role of its own that can do what `statements` say, log and tell."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        description: str,
        settings: HandlerSettings,
        timeout: Duration,
        memory_mb: int,
        statements: Sequence[iam.PolicyStatement],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        log_group = ExpiringLogGroup(self, "Logs", days=settings.log_retention_days)
        own = [
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]
            ),
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[settings.dead_letters.queue_arn]),
            iam.PolicyStatement(actions=["events:PutEvents"], resources=[settings.bus.event_bus_arn]),
        ]
        role = iam.Role(
            self,
            "Role",
            description=f"Muster: the function {name}",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            # Inline, so that the function never exists before it may do what it must.
            inline_policies={"Function": iam.PolicyDocument(statements=[*statements, *own])},
        )
        self.function = lambda_.Function(
            self,
            "Function",
            description=description,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler=f"lambdas.{name}.handler",
            code=settings.code,
            timeout=timeout,
            memory_size=memory_mb,
            environment={
                **settings.environment,
                **(environment or {}),
                "POWERTOOLS_SERVICE_NAME": function_service(name),
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
                "POWERTOOLS_LOG_LEVEL": "INFO",
            },
            # CDK would add grants of its own to the role; everything it may do stands here and in its caller.
            role=role.without_policy_updates(),
            log_group=log_group,
            retry_attempts=ASYNC_RETRIES,
            max_event_age=Duration.hours(ASYNC_EVENT_HOURS),
            dead_letter_queue=settings.dead_letters,
        )
