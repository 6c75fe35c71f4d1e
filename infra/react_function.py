"""React: what a change of a training job's status means for its replica."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.access import complete_tasks, training_jobs
from infra.handler_function import HandlerFunction, HandlerSettings
from infra.record_access import record_access


class ReactFunction(Construct):
    """Woken by EventBridge for every change of a job of ours."""

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
            name="react",
            description="Muster: records a job's change of status and decides what follows its end",
            settings=settings,
            timeout=Duration.seconds(60),
            # The time from a job's end to its successor passes through here: see attempt.
            memory_mb=1024,
            statements=[
                *record_access(bucket),
                training_jobs(
                    Stack.of(self),
                    job_prefix,
                    ["sagemaker:DescribeTrainingJob", "sagemaker:ListTags", "sagemaker:StopTrainingJob"],
                ),
                complete_tasks(),
            ],
        ).function
