"""The bucket in which a run's replicas meet and its control plane keeps its memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

# The backstop behind the replicas' own retention. Longer than a job can run (28 days), so that nothing disappears
# under a replica that still needs it.
RENDEZVOUS_DAYS = 35
# Longer than the upload of any checkpoint; parts of an upload that nobody finishes cost as much as objects.
INCOMPLETE_UPLOAD_DAYS = 7


class RendezvousBucket(Construct):
    """One bucket per stack; a key's first part decides who may touch it (muster.contract.layout).

    It is not versioned. Every round writes and deletes about as many bytes as the model has per replica, and
    checkpoints are synced over themselves: old versions would multiply the cost of a run and keep what retention
    deletes. Instead the bucket refuses to overwrite what the control plane writes once, refuses a record that is not
    compared first, and no role may delete under control/.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=False,
            # The results of runs outlive the stack.
            removal_policy=RemovalPolicy.RETAIN,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="rendezvous-expires", prefix="rendezvous/", expiration=Duration.days(RENDEZVOUS_DAYS)
                ),
                s3.LifecycleRule(
                    id="incomplete-uploads-are-aborted",
                    abort_incomplete_multipart_upload_after=Duration.days(INCOMPLETE_UPLOAD_DAYS),
                ),
            ],
        )
        self._refuse_writes(
            "WrittenOnce",
            ["control/*/plan.json", "control/*/stopping.json", "control/*/result.json", "control/*/lost/*", "runs/*"],
            {"s3:if-none-match": "true"},
        )
        self._refuse_writes(
            "ComparedAndSwapped", ["control/*/replicas/*"], {"s3:if-none-match": "true", "s3:if-match": "true"}
        )

    def _refuse_writes(self, sid: str, keys: Sequence[str], absent: Mapping[str, str]) -> None:
        """Nobody writes to `keys` while all the conditions in `absent` are missing from the request."""
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid=sid,
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["s3:PutObject"],
                resources=[self.bucket.arn_for_objects(key) for key in keys],
                conditions={"Null": dict(absent)},
            )
        )
