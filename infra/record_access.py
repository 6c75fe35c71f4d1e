"""What the two functions share that keep the replicas' records: attempt and react."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from infra.access import listing, objects


def record_access(bucket: s3.IBucket) -> list[iam.PolicyStatement]:
    """Read the plan and the fence, keep the records, mark what is lost, waited for or spent."""
    return [
        objects(bucket, ["s3:GetObject"], ["control/*/plan.json", "control/*/stopping.json"]),
        objects(bucket, ["s3:GetObject", "s3:PutObject"], ["control/*/replicas/*"]),
        objects(bucket, ["s3:PutObject"], ["control/*/lost/*", "control/*/waiting/*", "control/*/spent/*"]),
        listing(bucket, ["control/*"]),
    ]
