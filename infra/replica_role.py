"""The role under which the replicas' containers run. It never reaches control/."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.access import listing, log_group_arn, objects

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
METRIC_NAMESPACES = ["Muster", "/aws/sagemaker/TrainingJobs"]


class ReplicaRole(Construct):
    """What SageMaker and the training container need, in this stack's bucket alone."""

    def __init__(self, scope: Construct, construct_id: str, *, bucket: s3.IBucket) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        self.role = iam.Role(
            self,
            "Role",
            description="Muster: the training containers of the replicas",
            # Without the condition another account's SageMaker could be talked into using the role.
            assumed_by=iam.ServicePrincipal(
                "sagemaker.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": stack.account}}
            ),
            inline_policies={"Replica": iam.PolicyDocument(statements=_statements(stack, bucket))},
        )


def _statements(stack: Stack, bucket: s3.IBucket) -> list[iam.PolicyStatement]:
    return [
        objects(bucket, ["s3:GetObject"], ["runs/*"]),
        objects(
            bucket,
            ["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"],
            ["rendezvous/*", "checkpoints/*", "output/*"],
        ),
        # Retention: replicas remove the rounds that no joiner needs any more.
        objects(bucket, ["s3:DeleteObject"], ["rendezvous/*"]),
        listing(bucket, ["rendezvous/*", "checkpoints/*", "output/*"]),
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
