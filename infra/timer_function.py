"""Timer: the moments of a run at which somebody has to look."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.access import listing, objects, training_jobs
from infra.handler_function import HandlerFunction, HandlerSettings


class TimerFunction(Construct):
    """Called once per timer by EventBridge Scheduler, under the role that plan hands over."""

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
        stack = Stack.of(self)
        self.function = HandlerFunction(
            self,
            "Handler",
            name="timer",
            description="Muster: stops a run whose launch gate or deadline was missed",
            settings=settings,
            # As long as stop has: it does the same work.
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
                    ],
                ),
                objects(bucket, ["s3:PutObject"], ["control/*/stopping.json"]),
                listing(bucket, ["control/*"]),
                training_jobs(
                    stack,
                    job_prefix,
                    ["sagemaker:DescribeTrainingJob", "sagemaker:ListTags", "sagemaker:StopTrainingJob"],
                ),
            ],
        ).function
        self.scheduler_role = iam.Role(
            self,
            "Scheduler",
            description="Muster: rings the timers of runs",
            assumed_by=iam.ServicePrincipal(
                "scheduler.amazonaws.com", conditions={"StringEquals": {"aws:SourceAccount": stack.account}}
            ),
            inline_policies={
                "Timer": iam.PolicyDocument(
                    statements=[
                        iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[self.function.function_arn])
                    ]
                )
            },
        ).without_policy_updates()
        # What whoever sets a timer must be allowed to do, and be told.
        self.setting = [
            iam.PolicyStatement(
                actions=["scheduler:CreateSchedule"],
                resources=[
                    stack.format_arn(service="scheduler", resource="schedule", resource_name=f"default/{job_prefix}-*")
                ],
            ),
            iam.PolicyStatement(
                actions=["iam:PassRole"],
                resources=[self.scheduler_role.role_arn],
                conditions={"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}},
            ),
        ]
        self.environment = {
            "MUSTER_TIMER_FUNCTION_ARN": self.function.function_arn,
            "MUSTER_TIMER_ROLE_ARN": self.scheduler_role.role_arn,
        }
