"""The key of a deployment (`stack.kms_key_arn`): what it encrypts, and who may use it.

What the key's own policy must allow is in muster.infra.deploy.key_policy.
"""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs


def encrypt_with(stack: Stack, key_arn: str) -> None:
    """Encrypt the stack's bucket, log groups, topics and queues with the key instead of AWS's own keys."""
    for resource in stack.node.find_all():
        if isinstance(resource, logs.CfnLogGroup):
            resource.kms_key_id = key_arn
        elif isinstance(resource, sns.CfnTopic):
            resource.kms_master_key_id = key_arn
        elif isinstance(resource, sqs.CfnQueue):
            resource.kms_master_key_id = key_arn
            resource.sqs_managed_sse_enabled = None
        elif isinstance(resource, s3.CfnBucket):
            resource.bucket_encryption = _bucket_encryption(key_arn)


def use_key(key_arn: str | None) -> list[iam.PolicyStatement]:
    """What a role needs to read and write what the key encrypts; nothing where there is no key."""
    if key_arn is None:
        return []
    return [iam.PolicyStatement(actions=["kms:Decrypt", "kms:GenerateDataKey"], resources=[key_arn])]


def _bucket_encryption(key_arn: str) -> s3.CfnBucket.BucketEncryptionProperty:
    rule = s3.CfnBucket.ServerSideEncryptionRuleProperty(
        # S3 asks KMS once per role and hour or so instead of once per object; a round writes thousands.
        bucket_key_enabled=True,
        server_side_encryption_by_default=s3.CfnBucket.ServerSideEncryptionByDefaultProperty(
            sse_algorithm="aws:kms", kms_master_key_id=key_arn
        ),
    )
    return s3.CfnBucket.BucketEncryptionProperty(server_side_encryption_configuration=[rule])
