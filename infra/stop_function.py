"""Stop: no job of a run goes on."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.clear_up_access import clear_up_access
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
        results_key: str | None,
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
            statements=clear_up_access(Stack.of(self), bucket, job_prefix, results_key),
        ).function
