"""Plan: a spec becomes the plan and the replicas' document."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.access import listing, objects
from infra.alarm_function import AlarmFunction
from infra.handler_function import HandlerFunction, HandlerSettings


class PlanFunction(Construct):
    """Writes what is written once per run; called by the workflow first of all."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: HandlerSettings,
        bucket: s3.IBucket,
        replica_role: iam.IRole,
        default_image: str | None,
        launches_per_second: int,
        alarm: AlarmFunction,
    ) -> None:
        super().__init__(scope, construct_id)
        image = {"MUSTER_DEFAULT_IMAGE": default_image} if default_image else {}
        self.function = HandlerFunction(
            self,
            "Handler",
            name="plan",
            description="Muster: checks a run's spec and writes its plan",
            settings=settings,
            # Two small writes; the rest is patience with S3.
            timeout=Duration.seconds(60),
            memory_mb=512,
            environment={
                "MUSTER_REPLICA_ROLE_ARN": replica_role.role_arn,
                "MUSTER_LAUNCHES_PER_SECOND": str(launches_per_second),
                **alarm.environment,
                **image,
            },
            statements=[
                objects(bucket, ["s3:PutObject"], ["control/*/plan.json", "runs/*/document.json"]),
                # A plan that is there already may be this execution's own.
                objects(bucket, ["s3:GetObject"], ["control/*/plan.json", "queue/*"]),
                listing(bucket, ["queue/*"]),
                *alarm.setting,
            ],
        ).function
