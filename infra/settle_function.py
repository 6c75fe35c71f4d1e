"""Settle: the end of a run, written down."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.access import decryption, listing, objects, page_writing, run_jobs
from infra.admit_function import queue_access
from infra.handler_function import HandlerFunction, HandlerSettings


class SettleFunction(Construct):
    """Called by the workflow last of all: resolves manifests, weighs the outcomes, writes the result."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: HandlerSettings,
        bucket: s3.IBucket,
        job_prefix: str,
        results_key: str | None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = HandlerFunction(
            self,
            "Handler",
            name="settle",
            description="Muster: resolves the replicas' manifests and writes the result of a run",
            settings=settings,
            # Reads the head of every replica's archive: Lambda's longest, for thousands of them.
            timeout=Duration.seconds(900),
            memory_mb=1024,
            statements=[
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
                objects(bucket, ["s3:PutObject"], ["control/*/result.json"]),
                listing(bucket, ["control/*", "queue/*", "rendezvous/*/commits/*"]),
                *page_writing(bucket),
                *decryption(results_key),
                *run_jobs(Stack.of(self), job_prefix),
                *queue_access(bucket),
            ],
        ).function
