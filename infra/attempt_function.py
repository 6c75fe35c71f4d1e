"""Attempt: launches or adopts the training job that carries a replica."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.access import complete_tasks, training_jobs
from infra.handler_function import HandlerFunction, HandlerSettings
from infra.record_access import record_access


class AttemptFunction(Construct):
    """Called by the workflow once per attempt, and again whenever an attempt is re-armed."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: HandlerSettings,
        bucket: s3.IBucket,
        replica_role: iam.IRole,
        job_prefix: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self.function = HandlerFunction(
            self,
            "Handler",
            name="attempt",
            description="Muster: launches or adopts the job of a replica's attempt",
            settings=settings,
            # A storm of CreateTrainingJob throttling is waited out inside the call.
            timeout=Duration.seconds(120),
            # Lambda gives CPU by memory, and a cold start is CPU: 1,024 MB halve it against 512.
            memory_mb=1024,
            statements=[
                *record_access(bucket),
                training_jobs(
                    Stack.of(self),
                    job_prefix,
                    [
                        "sagemaker:AddTags",
                        "sagemaker:CreateTrainingJob",
                        "sagemaker:DescribeTrainingJob",
                        "sagemaker:ListTags",
                        "sagemaker:StopTrainingJob",
                    ],
                ),
                iam.PolicyStatement(
                    actions=["iam:PassRole"],
                    resources=[replica_role.role_arn],
                    conditions={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
                ),
                complete_tasks(),
            ],
        ).function
