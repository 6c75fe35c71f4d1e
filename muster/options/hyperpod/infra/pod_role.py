"""The role of the pods of replicas on clusters. It has no access to control/.

EKS gives it to the service account of a run, within a session policy that allows the part of that run alone. So the
role itself allows what the runs of the stack may do together, and never more.
"""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from muster.contract.run.notices import NOTICES
from muster.contract.spec.recipe_reference import recipe_folder
from muster.contract.training.clusters import Clusters
from muster.contract.training.source_delivery import PACKAGES, SOURCE
from muster.infra.encryption import use_key
from muster.infra.policy import Statement, Target, policy_statements, read, write
from muster.infra.replica_role import read_data, read_secrets
from muster.infra.settings.stack_settings import StackSettings

_SERVICE = "pods.eks.amazonaws.com"
# A digest is known to those alone who have the plan: nothing can be listed without it.
_DIGEST = "?" * 64
_SHARED = ("rendezvous/*", "checkpoints/*")
_OUTPUT = "output/*"


class PodRole(Construct):
    """Can be assumed by EKS Pod Identity alone, for the clusters of the settings."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: StackSettings,
        *,
        bucket: s3.IBucket,
    ) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        of_these = {
            "StringEquals": {"aws:SourceAccount": stack.account},
            "ArnEquals": {"aws:SourceArn": eks_cluster_arns(stack, settings.clusters)},
        }
        self.role = iam.Role(
            self,
            "Role",
            description="Muster: the pods of replicas on clusters",
            assumed_by=iam.SessionTagsPrincipal(iam.ServicePrincipal(_SERVICE, conditions=of_these)),
            inline_policies={
                "Pod": iam.PolicyDocument(
                    statements=[
                        *_bucket(bucket),
                        *use_key(settings.stack.kms_key_arn),
                        *read_data(stack, settings.replicas),
                        *read_secrets(stack, settings.replicas),
                    ]
                )
            },
        )


def eks_cluster_arns(stack: Stack, clusters: Clusters) -> list[str]:
    """The EKS clusters that orchestrate the HyperPod clusters of the settings."""
    return [
        stack.format_arn(service="eks", resource="cluster", resource_name=cluster.eks_cluster)
        for cluster in clusters.clusters
    ]


def _bucket(bucket: s3.IBucket) -> list[iam.PolicyStatement]:
    """The part of the stack's bucket that belongs to runs."""
    digests = [*(f"{prefix}{_DIGEST}*" for prefix in (SOURCE, PACKAGES)), f"{recipe_folder(_DIGEST)}*"]
    statements = (
        read("runs/*", f"{SOURCE}*", f"{PACKAGES}*", f"{recipe_folder(_DIGEST)}*"),
        Statement(("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"), Target.OBJECTS, (*_SHARED, _OUTPUT)),
        Statement(("s3:DeleteObject",), Target.OBJECTS, _SHARED),
        write(f"{NOTICES}*"),
        Statement(
            ("s3:ListBucket",),
            Target.BUCKET,
            conditions={"StringLike": {"s3:prefix": [*_SHARED, _OUTPUT, *digests]}},
        ),
    )
    arn = [bucket.bucket_arn]
    return policy_statements(statements, {Target.OBJECTS: arn, Target.BUCKET: arn})
