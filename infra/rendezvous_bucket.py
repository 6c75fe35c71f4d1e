"""The bucket in which a run's replicas meet and its control plane keeps its memory."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
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
    deletes. What must not be overwritten (plan, fence, result, commits) is written with If-None-Match, records with
    If-Match, and no role may delete under control/.
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
