"""What the two functions share that end a run early: stop and sweep."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from infra.access import decryption, listing, objects, page_writing, run_jobs
from infra.admit_function import queue_access


def clear_up_access(
    stack: Stack, bucket: s3.IBucket, job_prefix: str, results_key: str | None
) -> list[iam.PolicyStatement]:
    """Fence a run, see its jobs gone and settle it."""
    return [
        objects(
            bucket,
            ["s3:GetObject"],
            [
                "control/*/plan.json",
                "control/*/stopping.json",
                "control/*/result.json",
                "control/*/replicas/*",
                "output/*",
            ],
        ),
        objects(bucket, ["s3:PutObject"], ["control/*/stopping.json", "control/*/result.json"]),
        listing(bucket, ["control/*", "queue/*", "rendezvous/*/commits/*"]),
        *page_writing(bucket),
        *decryption(results_key),
        *run_jobs(stack, job_prefix),
        *queue_access(bucket),
    ]
