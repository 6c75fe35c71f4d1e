"""Statements that several roles need in the same shape. Every role's policy is written by hand from these."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3


def objects(bucket: s3.IBucket, actions: Sequence[str], keys: Sequence[str]) -> iam.PolicyStatement:
    """`actions` on the objects whose keys match one of `keys`."""
    return iam.PolicyStatement(actions=list(actions), resources=[bucket.arn_for_objects(key) for key in keys])


def page_writing(bucket: s3.IBucket) -> list[iam.PolicyStatement]:
    """Writing the page of a run that has ended: the commits of its replicas are read for it."""
    return [
        objects(bucket, ["s3:GetObject"], ["rendezvous/*/commits/*"]),
        objects(bucket, ["s3:PutObject"], ["control/*/report.html"]),
    ]


def decryption(key_arn: str | None) -> list[iam.PolicyStatement]:
    """Reading what was encrypted with the deployment's key, where it has one."""
    return [] if key_arn is None else [iam.PolicyStatement(actions=["kms:Decrypt"], resources=[key_arn])]


def listing(bucket: s3.IBucket, prefixes: Sequence[str]) -> iam.PolicyStatement:
    """Listing under `prefixes` only.

    S3 answers 404 for a missing key to a caller that may list the bucket, and 403 to one that may not. A GET or HEAD
    carries no s3:prefix, hence IfExists: it sees the 404, and a listing is still held to the prefixes.
    """
    return iam.PolicyStatement(
        actions=["s3:ListBucket"],
        resources=[bucket.bucket_arn],
        conditions={"StringLikeIfExists": {"s3:prefix": list(prefixes)}},
    )


def training_jobs(stack: Stack, job_prefix: str, actions: Sequence[str]) -> iam.PolicyStatement:
    """SageMaker `actions` on the training jobs of this stack, known by the beginning of their names."""
    # SageMaker writes names in ARNs in lower case.
    prefixes = sorted({job_prefix, job_prefix.lower()})
    jobs = [stack.format_arn(service="sagemaker", resource="training-job", resource_name=f"{p}-*") for p in prefixes]
    return iam.PolicyStatement(actions=list(actions), resources=jobs)


def run_jobs(stack: Stack, job_prefix: str) -> list[iam.PolicyStatement]:
    """Find the jobs of a run, tell its own from others', look at them and stop them."""
    actions = ["sagemaker:DescribeTrainingJob", "sagemaker:ListTags", "sagemaker:StopTrainingJob"]
    return [
        training_jobs(stack, job_prefix, actions),
        # `*` is forced: ListTrainingJobs has no resource level.
        iam.PolicyStatement(actions=["sagemaker:ListTrainingJobs"], resources=["*"]),
    ]


def complete_tasks() -> iam.PolicyStatement:
    """Answering the workflow's task tokens."""
    # `*` is forced: SendTaskSuccess and SendTaskFailure have no resource level. The token is the capability, and
    # tokens lie under control/ only.
    return iam.PolicyStatement(actions=["states:SendTaskSuccess", "states:SendTaskFailure"], resources=["*"])


def log_group_arn(stack: Stack, name: str) -> str:
    """The ARN of the streams of a log group that Muster does not make itself."""
    return stack.format_arn(
        service="logs", resource="log-group", resource_name=f"{name}:*", arn_format=ArnFormat.COLON_RESOURCE_NAME
    )
