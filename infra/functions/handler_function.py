"""A function of the control plane: its log group, its role, its bounded retries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from muster.contract.names import METRICS_NAMESPACE, function_service
from muster.contract.training.network_access import VpcConfig
from muster.infra.encryption import use_key
from muster.infra.functions.event_delivery import DeadLetters
from muster.infra.functions.function_table import FunctionRow
from muster.infra.policy import Arns, policy_statements

ASYNC_RETRIES = 2  # Lambda: the maximum for an asynchronous event
ASYNC_EVENT_HOURS = 6  # Lambda: the longest that it keeps one
ALIAS = "live"
"""The name under which a function with snapshots is called: it leads to the newest version."""


class ExpiringLogGroup(logs.LogGroup):
    """A log group that keeps its events for `days` (a number that CloudWatch Logs takes) and goes with the stack."""

    def __init__(self, scope: Construct, construct_id: str, *, days: int, name: str | None = None) -> None:
        super().__init__(scope, construct_id, log_group_name=name, removal_policy=RemovalPolicy.DESTROY)
        # The construct's own parameter is an enum by name; the resource takes the number.
        cast(logs.CfnLogGroup, self.node.default_child).retention_in_days = days


@dataclass(frozen=True)
class HandlerSettings:
    """What all functions of a stack have in common."""

    code: lambda_.Code
    dead_letters: DeadLetters
    bus: events.IEventBus
    log_retention_days: int
    environment: Mapping[str, str]
    kms_key_arn: str | None = None
    network: VpcConfig | None = None
    """Where the functions are whose rows say so; None: in no VPC."""
    snap_start: bool = False
    """Whether the functions start from snapshots whose rows say so."""
    bucket_name: str = ""
    """The bucket's name, if it is a chosen one."""


class HandlerFunction(Construct):
    """`lambdas.{row.name}.handler` under a role of its own.

    The role allows what the row's statements say, writing the function's own log and its dead letters.
    `environment` holds the variables that the row names.

    Attributes:
        function: the function itself, with its role and its environment.
        called: what others call, and are allowed to call: the function, or the alias of one with snapshots.
    """

    def __init__(
        self, scope: Construct, row: FunctionRow, settings: HandlerSettings, *, arns: Arns, environment: dict[str, str]
    ) -> None:
        super().__init__(scope, "Handler")
        log_group = ExpiringLogGroup(self, "Logs", days=settings.log_retention_days)
        network = settings.network if row.in_network else None
        snap_start = row.snap_start and settings.snap_start
        statements = policy_statements(row.statements, arns)
        role = self._role(row.name, [*statements, *_own_statements(log_group, settings), *_join_network(network)])
        self.function = lambda_.Function(
            self,
            "Function",
            description=row.description,
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler=f"lambdas.{row.name}.handler",
            code=settings.code,
            timeout=Duration.seconds(row.timeout_seconds),
            memory_size=row.memory_mb,
            environment={**settings.environment, **environment, **_logs_and_metrics(row, settings)},
            # The CDK would add grants of its own to the role; all that it allows stands in the row and here.
            role=role.without_policy_updates(),
            log_group=log_group,
            retry_attempts=ASYNC_RETRIES,
            max_event_age=Duration.hours(ASYNC_EVENT_HOURS),
            dead_letter_queue=settings.dead_letters.queue,
            snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if snap_start else None,
            # A new version only where code or configuration changes. Old ones stay: events that were accepted for one
            # may wait for hours, and a rollback leads back to it. One that was made by a deployment that is rolled back
            # goes with it: otherwise the same code could not be published again.
            current_version_options=lambda_.VersionOptions(removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
            if snap_start
            else None,
        )
        self.called: lambda_.IFunction = self.function
        if network is not None:
            # The construct's own parameter would look the VPC up in the account.
            cast(
                "lambda_.CfnFunction", self.function.node.default_child
            ).vpc_config = lambda_.CfnFunction.VpcConfigProperty(
                subnet_ids=network.subnets, security_group_ids=network.security_group_ids
            )
        if snap_start:
            # A bucket with another name takes the place of the one before, and the function's template stays the same.
            self.function.invalidate_version_based_on(settings.bucket_name)
            self.called = self._live()

    def _role(self, name: str, statements: list[iam.PolicyStatement]) -> iam.Role:
        return iam.Role(
            self,
            "Role",
            description=f"Muster: the function {name}",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            # Inline, so that the function never exists without its permissions.
            inline_policies={"Function": iam.PolicyDocument(statements=statements)},
        )

    def _live(self) -> lambda_.Alias:
        """What a function says of its asynchronous events does not hold for those of an alias, which says it again."""
        return lambda_.Alias(
            self,
            "Live",
            alias_name=ALIAS,
            version=self.function.current_version,
            retry_attempts=ASYNC_RETRIES,
            max_event_age=Duration.hours(ASYNC_EVENT_HOURS),
        )


def _logs_and_metrics(row: FunctionRow, settings: HandlerSettings) -> dict[str, str]:
    return {
        "POWERTOOLS_SERVICE_NAME": function_service(settings.environment["MUSTER_JOB_PREFIX"], row.name),
        "POWERTOOLS_METRICS_NAMESPACE": METRICS_NAMESPACE,
        "POWERTOOLS_LOG_LEVEL": "INFO",
    }


def _own_statements(log_group: logs.LogGroup, settings: HandlerSettings) -> list[iam.PolicyStatement]:
    """What every function may do."""
    return [
        iam.PolicyStatement(actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]),
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[settings.dead_letters.queue.queue_arn]),
        *use_key(settings.kms_key_arn),
    ]


_INTERFACES = [
    *("ec2:AssignPrivateIpAddresses", "ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"),
    *("ec2:DescribeNetworkInterfaces", "ec2:DescribeSubnets", "ec2:UnassignPrivateIpAddresses"),
]


def _join_network(network: VpcConfig | None) -> list[iam.PolicyStatement]:
    """What Lambda needs to put the function into a VPC, and the function's own code must not do."""
    if network is None:
        return []
    # `*` is forced: Lambda asks for these without a resource. A call of the function itself has its ARN.
    by_itself = {"Null": {"lambda:SourceFunctionArn": "false"}}
    return [
        iam.PolicyStatement(actions=_INTERFACES, resources=["*"]),
        iam.PolicyStatement(effect=iam.Effect.DENY, actions=_INTERFACES, resources=["*"], conditions=by_itself),
    ]
