"""The role under which the replicas' containers run. It has no access to control/."""

from __future__ import annotations

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.encryption import use_key
from infra.policy import Statement, Target, list_under, policy_statements, read, service_of_account
from infra.settings.stack_settings import ReplicasTable, StackSettings
from muster.contract.aws.metric_names import NAMESPACE
from muster.contract.layout import split_s3_uri
from muster.contract.names import TRAINING_LOG_GROUP
from muster.contract.run.source_delivery import PACKAGES, SOURCE
from muster.contract.spec.stack_defaults import StackDefaults

# SageMaker puts its metrics of training jobs under the name of their log group.
METRIC_NAMESPACES = [NAMESPACE, TRAINING_LOG_GROUP]


class ReplicaRole(Construct):
    """What SageMaker and the training container need, in this stack's bucket alone.

    A deployment can bring a role of its own (`replicas.role_arn`) and is then responsible for its permissions; the
    stack makes none.
    """

    def __init__(self, scope: Construct, construct_id: str, settings: StackSettings, *, bucket: s3.IBucket) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        if settings.replicas.role_arn is not None:
            self.role: iam.IRole = iam.Role.from_role_arn(self, "Role", settings.replicas.role_arn, mutable=False)
            return
        statements = [
            *_bucket(bucket),
            *_services(stack),
            *_network(stack, settings.defaults),
            *_keys(settings.defaults),
            *use_key(settings.stack.kms_key_arn),
            *_data(stack, settings.replicas),
        ]
        self.role = iam.Role(
            self,
            "Role",
            description="Muster: the training containers of the replicas",
            assumed_by=service_of_account("sagemaker.amazonaws.com", stack.account),
            inline_policies={"Replica": iam.PolicyDocument(statements=statements)},
            managed_policies=[
                iam.ManagedPolicy.from_managed_policy_arn(self, f"Policy{index}", arn)
                for index, arn in enumerate(settings.replicas.policy_arns)
            ],
        )


def _network(stack: Stack, defaults: StackDefaults) -> list[iam.PolicyStatement]:
    """What SageMaker needs to put a container into the deployment's VPC; nothing where there is none."""
    vpc = defaults.vpc_config
    if vpc is None:
        return []

    def ec2(resource: str, name: str) -> str:
        return stack.format_arn(service="ec2", resource=resource, resource_name=name)

    interfaces = ec2("network-interface", "*")
    groups = [ec2("security-group", group) for group in vpc.security_group_ids]
    return [
        iam.PolicyStatement(
            actions=["ec2:CreateNetworkInterface"],
            resources=[interfaces, *(ec2("subnet", subnet) for subnet in vpc.subnets), *groups],
        ),
        iam.PolicyStatement(
            actions=["ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface"], resources=[interfaces]
        ),
        # `*` is forced: none of these actions has a resource level.
        iam.PolicyStatement(
            actions=[
                "ec2:DeleteNetworkInterfacePermission",
                "ec2:DescribeDhcpOptions",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
            ],
            resources=["*"],
        ),
    ]


def _keys(defaults: StackDefaults) -> list[iam.PolicyStatement]:
    """What SageMaker needs of the deployment's key: it encrypts results with the key and volumes by a grant."""
    if defaults.kms_key_id is None:
        return []
    key = [defaults.kms_key_id]
    return [
        iam.PolicyStatement(actions=["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"], resources=key),
        # EC2 attaches the volume by a grant; the condition keeps the container from granting the key to others.
        iam.PolicyStatement(
            actions=["kms:CreateGrant"], resources=key, conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}}
        ),
    ]


def _data(stack: Stack, replicas: ReplicasTable) -> list[iam.PolicyStatement]:
    """Reading the deployment's training data: SageMaker lists a channel's prefix and gets the objects under it."""
    prefixes: dict[str, list[str]] = {}
    for uri in replicas.data:
        bucket, prefix = split_s3_uri(uri)
        prefixes.setdefault(bucket, []).append(f"{prefix}*")
    statements = []
    for name, patterns in prefixes.items():
        arn = stack.format_arn(service="s3", region="", account="", resource=name)
        objects = [f"{arn}/{pattern}" for pattern in patterns]
        statements += [
            iam.PolicyStatement(actions=["s3:GetObject"], resources=objects),
            iam.PolicyStatement(
                actions=["s3:ListBucket"], resources=[arn], conditions={"StringLike": {"s3:prefix": patterns}}
            ),
        ]
    if replicas.data_kms_key_arns:
        statements.append(iam.PolicyStatement(actions=["kms:Decrypt"], resources=replicas.data_kms_key_arns))
    return statements


def _bucket(bucket: s3.IBucket) -> list[iam.PolicyStatement]:
    """The replicas' part of the stack's bucket."""
    statements = (
        read("runs/*", f"{SOURCE}*", f"{PACKAGES}*"),
        Statement(
            ("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"),
            Target.OBJECTS,
            ("rendezvous/*", "checkpoints/*", "output/*"),
        ),
        # Replicas delete the rounds that no joiner needs any more, and SageMaker what a trainer deletes among its
        # checkpoints.
        Statement(("s3:DeleteObject",), Target.OBJECTS, ("rendezvous/*", "checkpoints/*")),
        list_under("rendezvous/*", "checkpoints/*", "output/*", f"{SOURCE}*", f"{PACKAGES}*"),
    )
    arn = [bucket.bucket_arn]
    return policy_statements(statements, {Target.OBJECTS: arn, Target.BUCKET: arn})


def _services(stack: Stack) -> list[iam.PolicyStatement]:
    """Logs, images and metrics."""
    logs = stack.format_arn(
        service="logs",
        resource="log-group",
        resource_name=f"{TRAINING_LOG_GROUP}:*",
        arn_format=ArnFormat.COLON_RESOURCE_NAME,
    )
    return [
        iam.PolicyStatement(
            # SageMaker makes the group with the first job of the account.
            actions=["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            resources=[logs],
        ),
        # `*` is forced: the token has no resource level.
        iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"]),
        # Any repository, also of other accounts, because AWS keeps its training images in its own. The repository's
        # policy must allow the pull as well.
        iam.PolicyStatement(
            actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=[stack.format_arn(service="ecr", account="*", resource="repository", resource_name="*")],
        ),
        # `*` is forced: PutMetricData has no resource level; the condition limits it to our namespaces.
        iam.PolicyStatement(
            actions=["cloudwatch:PutMetricData"],
            resources=["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": METRIC_NAMESPACES}},
        ),
    ]
