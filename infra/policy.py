"""IAM statements as data. Every role's policy is written by hand as a list of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from aws_cdk import ArnFormat, Aws, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns

from muster.contract.names import TRAINING_LOG_GROUP


class Target(Enum):
    """The resources that a statement can name."""

    ANY = auto()
    """`*`, for actions that have no resource level: the service forces it."""
    BUCKET = auto()
    """The stack's bucket, for ListBucket."""
    OBJECTS = auto()
    """Objects in the stack's bucket."""
    RESULTS_KEY = auto()
    """The KMS key of the deployment, where it has one."""
    JOBS = auto()
    """Training jobs whose names begin with the stack's job prefix."""
    JOB_LOG_GROUP = auto()
    """The log group of all training jobs of the account."""
    JOB_LOGS = auto()
    """The log streams of those training jobs."""
    TRAINING_PLANS = auto()
    """Training plans and what they reserve. CreateTrainingJob asks for both where a job uses a plan."""
    RECIPE_SOURCES = auto()
    """The objects from which the function plan may read recipes; empty where the settings name none."""
    PUBLIC_HUB = auto()
    """AWS's hub of public models, and what is in it."""
    CLUSTERS = auto()
    """The EKS clusters of the settings; empty where they name none, as the next three are."""
    POD_ASSOCIATIONS = auto()
    """What gives service accounts of these clusters a role."""
    POD_ROLE = auto()
    """The role of the pods of replicas."""
    NOTICES = auto()
    """The queue of what replicas on clusters have written to wake the control plane."""
    REPLICA_ROLE = auto()
    LAUNCHER_ROLE = auto()
    """The role in whose sessions attempt creates jobs."""
    PLACE_LAUNCHERS = auto()
    """Such roles of the stack's other places; empty where it has none."""
    PLACE_NOTICES = auto()
    """The queue of what replicas have written of others in silent places; empty as well."""
    TIMERS = auto()
    """The schedules of EventBridge Scheduler whose names begin with the stack's job prefix."""
    TIMER_ROLE = auto()
    """The role under which EventBridge Scheduler calls the function timer."""
    STATE_MACHINE = auto()
    EXECUTIONS = auto()
    """Executions of the state machine; the children of a Distributed Map are not among them."""
    BUS = auto()
    """The stack's event bus."""
    TOPIC = auto()
    """The topic to which people subscribe."""


Arns = Mapping[Target, Sequence[str]]
"""The ARNs that each target stands for in a stack; empty for what the deployment does without."""


@dataclass(frozen=True)
class Statement:
    """Allow `actions` on `target`; `keys` are patterns of objects in the bucket."""

    actions: tuple[str, ...]
    target: Target
    keys: tuple[str, ...] = ()
    conditions: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def resources(self, arns: Arns) -> list[str]:
        """The resources of the IAM statement."""
        found = arns[self.target]
        return [f"{arn}/{key}" for arn in found for key in self.keys] if self.keys else list(found)


def allow(target: Target, *actions: str) -> Statement:
    """`actions` on `target`."""
    return Statement(actions, target)


def read(*keys: str) -> Statement:
    """GetObject on the objects whose keys match one of `keys`."""
    return Statement(("s3:GetObject",), Target.OBJECTS, keys)


def write(*keys: str) -> Statement:
    """PutObject on the objects whose keys match one of `keys`."""
    return Statement(("s3:PutObject",), Target.OBJECTS, keys)


def read_and_write(*keys: str) -> Statement:
    """GetObject and PutObject on the objects whose keys match one of `keys`."""
    return Statement(("s3:GetObject", "s3:PutObject"), Target.OBJECTS, keys)


def list_under(*prefixes: str) -> Statement:
    """ListBucket for `prefixes` only.

    S3 answers 404 for a missing key to a caller that may list the bucket, and 403 to one that may not. A GET or HEAD
    carries no s3:prefix, hence IfExists: it gets the 404, while a listing stays limited to the prefixes.
    """
    return Statement(
        ("s3:ListBucket",), Target.BUCKET, conditions={"StringLikeIfExists": {"s3:prefix": list(prefixes)}}
    )


def pass_role(role: Target, service: str) -> Statement:
    """PassRole of `role` to `service` only."""
    return Statement(("iam:PassRole",), role, conditions={"StringEquals": {"iam:PassedToService": service}})


def in_account(statement: Statement, account: str) -> Mapping[str, Mapping[str, object]]:
    """The conditions of `statement`, and that the bucket it names belongs to `account`.

    A bucket's name is free again when the bucket is deleted. Without this condition the stack would go on to read from
    and write to the bucket of the account that takes the name next.
    """
    if statement.target not in {Target.BUCKET, Target.OBJECTS}:
        return statement.conditions
    equals = {**statement.conditions.get("StringEquals", {}), "aws:ResourceAccount": account}
    return {**statement.conditions, "StringEquals": equals}


def policy_statements(
    statements: Iterable[Statement], arns: Arns, account: str = Aws.ACCOUNT_ID
) -> list[iam.PolicyStatement]:
    """The statements as the CDK takes them; those on a target that the stack does without are left out.

    `account` is that of the bucket, by default the stack's own.
    """
    return [
        iam.PolicyStatement(
            actions=list(statement.actions),
            resources=resources,
            conditions=dict(in_account(statement, account)) or None,
        )
        for statement in statements
        if (resources := statement.resources(arns))
    ]


def service_of_account(service: str, account: str) -> iam.ServicePrincipal:
    """`service`, acting for resources of `account` only: another account's must not be able to use the role."""
    return iam.ServicePrincipal(service, conditions={"StringEquals": {"aws:SourceAccount": account}})


def allow_publishing(topic: sns.Topic, sid: str, service: str) -> None:
    """Let `service` publish to `topic` for resources of the stack's account only."""
    topic.add_to_resource_policy(
        iam.PolicyStatement(
            sid=sid,
            actions=["sns:Publish"],
            principals=[service_of_account(service, Stack.of(topic).account)],
            resources=[topic.topic_arn],
        )
    )


def log_group_arn(stack: Stack, rest: str) -> str:
    """The ARN of the group and what follows its name: `:log-stream:…` for streams."""
    return stack.format_arn(
        service="logs",
        resource="log-group",
        resource_name=f"{TRAINING_LOG_GROUP}{rest}",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )


def job_targets(stack: Stack, job_prefix: str) -> dict[Target, Sequence[str]]:
    """The training jobs of a stack where `stack` is, the plans that they may use, and their logs."""
    # SageMaker writes names in ARNs in lower case.
    prefixes = sorted({job_prefix, job_prefix.lower()})
    return {
        Target.JOBS: [
            stack.format_arn(service="sagemaker", resource="training-job", resource_name=f"{prefix}-*")
            for prefix in prefixes
        ],
        Target.JOB_LOG_GROUP: [log_group_arn(stack, ":*")],
        Target.JOB_LOGS: [log_group_arn(stack, f":log-stream:{job_prefix}-*")],
        Target.TRAINING_PLANS: [
            stack.format_arn(service="sagemaker", resource=resource, resource_name="*")
            for resource in ("training-plan", "reserved-capacity")
        ],
    }
