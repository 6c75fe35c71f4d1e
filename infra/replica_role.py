"""The role under which the replicas' containers run. It has no access to control/."""

from __future__ import annotations

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

from infra.encryption import use_key
from infra.policy import Statement, Target, list_under, policy_statements, read, service_of_account
from infra.settings.stack_settings import StackSettings
from muster.contract.aws.metric_names import NAMESPACE
from muster.contract.names import TRAINING_LOG_GROUP
from muster.contract.run.source_delivery import SOURCE
from muster.contract.spec.stack_defaults import StackDefaults

# SageMaker puts its metrics of training jobs under the name of their log group.
METRIC_NAMESPACES = [NAMESPACE, TRAINING_LOG_GROUP]


class ReplicaRole(Construct):
    """What SageMaker and the training container need, in this stack's bucket alone.

    A deployment can bring a role of its own (`replicas.role_arn`) and is then responsible for its permissions; the
    stack makes none.
    """

    def __init__(
        self, scope: Construct, construct_id: str, settings: StackSettings, *, bucket: s3.IBucket, package: Asset
    ) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        if settings.replicas.role_arn is not None:
            self.role: iam.IRole = iam.Role.from_role_arn(self, "Role", settings.replicas.role_arn, mutable=False)
            return
        statements = [
            *_bucket(bucket),
            *_services(stack),
            *_package(package),
            *_network(stack, settings.defaults),
            *_keys(settings.defaults),
            *use_key(settings.stack.kms_key_arn),
        ]
        self.role = iam.Role(
            self,
            "Role",
            description="Muster: the training containers of the replicas",
            assumed_by=service_of_account("sagemaker.amazonaws.com", stack.account),
            inline_policies={"Replica": iam.PolicyDocument(statements=statements)},
        )


def _package(package: Asset) -> list[iam.PolicyStatement]:
    """Muster's replica package, which is an input channel: SageMaker lists it by its whole key first."""
    key = package.s3_object_key
    return [
        iam.PolicyStatement(actions=["s3:GetObject"], resources=[package.bucket.arn_for_objects(key)]),
        iam.PolicyStatement(
            actions=["s3:ListBucket"],
            resources=[package.bucket.bucket_arn],
            conditions={"StringEquals": {"s3:prefix": key}},
        ),
    ]


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


def _bucket(bucket: s3.IBucket) -> list[iam.PolicyStatement]:
    """The replicas' part of the stack's bucket."""
    statements = (
        read("runs/*", f"{SOURCE}*"),
        Statement(
            ("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"),
            Target.OBJECTS,
            ("rendezvous/*", "checkpoints/*", "output/*"),
        ),
        # Retention: replicas delete the rounds that no joiner needs any more.
        Statement(("s3:DeleteObject",), Target.OBJECTS, ("rendezvous/*",)),
        list_under("rendezvous/*", "checkpoints/*", "output/*", f"{SOURCE}*"),
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
