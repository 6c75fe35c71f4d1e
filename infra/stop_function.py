"""Stop: no job of a run goes on."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.access import listing, objects, run_jobs
from infra.handler_function import HandlerFunction, HandlerSettings


class StopFunction(Construct):
    """Called by the workflow on a fatal verdict and by EventBridge when an execution ends early."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: HandlerSettings,
        bucket: s3.IBucket,
        job_prefix: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = HandlerFunction(
            self,
            "Handler",
            name="stop",
            description="Muster: fences a run, stops its jobs and settles it",
            settings=settings,
            # Thousands of jobs at the pace of StopTrainingJob, then a wait for their ends: Lambda's longest.
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
                objects(bucket, ["s3:PutObject"], ["control/*/stopping.json", "control/*/result.json"]),
                listing(bucket, ["control/*"]),
                *run_jobs(Stack.of(self), job_prefix),
            ],
        ).function
