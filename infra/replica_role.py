"""The role under which the replicas' containers run. It never reaches control/."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

from infra.access import listing, log_group_arn, objects
from muster.contract.aws.metric_names import NAMESPACE
from muster.contract.names import TRAINING_LOG_GROUP
from muster.contract.run.source_delivery import SOURCE
from muster.contract.spec.stack_defaults import StackDefaults

# SageMaker puts its metrics of training jobs under the name of their log group.
METRIC_NAMESPACES = [NAMESPACE, TRAINING_LOG_GROUP]


class ReplicaRole(Construct):
    """What SageMaker and the training container need, in this stack's bucket alone.

    A deployment that brings a role of its own (`arn`) answers for what that role may do; none is made then.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        bucket: s3.IBucket,
        package: Asset,
        defaults: StackDefaults,
        arn: str | None,
    ) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        if arn is not None:
            self.role: iam.IRole = iam.Role.from_role_arn(self, "Role", arn, mutable=False)
            return
        statements = [*_statements(stack, bucket), *_package(package), *_network(stack, defaults), *_keys(defaults)]
        self.role = iam.Role(
            self,
            "Role",
            description="Muster: the training containers of the replicas",
            # Without the condition another account's SageMaker could be talked into using the role.
            assumed_by=iam.ServicePrincipal(
                "sagemaker.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": stack.account}}
            ),
            inline_policies={"Replica": iam.PolicyDocument(statements=statements)},
        )


def _package(package: Asset) -> list[iam.PolicyStatement]:
    """Reading Muster's replica package as an input channel: SageMaker lists it by its whole key first."""
    key = package.s3_object_key
    return [
        objects(package.bucket, ["s3:GetObject"], [key]),
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
        # `*` is forced: none of them has a resource level.
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
    """What SageMaker needs of the deployment's key: results are encrypted with it, and volumes by a grant."""
    if defaults.kms_key_id is None:
        return []
    key = [defaults.kms_key_id]
    return [
        iam.PolicyStatement(actions=["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"], resources=key),
        # EC2 attaches the volume with the grant; a container cannot grant the key to anybody else.
        iam.PolicyStatement(
            actions=["kms:CreateGrant"], resources=key, conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}}
        ),
    ]


def _statements(stack: Stack, bucket: s3.IBucket) -> list[iam.PolicyStatement]:
    return [
        objects(bucket, ["s3:GetObject"], ["runs/*", f"{SOURCE}*"]),
        objects(
            bucket,
            ["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"],
            ["rendezvous/*", "checkpoints/*", "output/*"],
        ),
        # Retention: replicas remove the rounds that no joiner needs any more.
        objects(bucket, ["s3:DeleteObject"], ["rendezvous/*"]),
        listing(bucket, ["rendezvous/*", "checkpoints/*", "output/*", f"{SOURCE}*"]),
        iam.PolicyStatement(
            # SageMaker makes the group with the first job of the account.
            actions=["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            resources=[log_group_arn(stack, TRAINING_LOG_GROUP)],
        ),
        # `*` is forced: the token has no resource level.
        iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"]),
        # Any repository, other accounts' too (AWS keeps its training containers in its own): whether it may be
        # pulled is decided by the repository's policy as well.
        iam.PolicyStatement(
            actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=[stack.format_arn(service="ecr", account="*", resource="repository", resource_name="*")],
        ),
        # `*` is forced: PutMetricData has no resource level; the condition holds it to our namespaces.
        iam.PolicyStatement(
            actions=["cloudwatch:PutMetricData"],
            resources=["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": METRIC_NAMESPACES}},
        ),
    ]
