"""Plan: a spec becomes the plan and the replicas' document."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.access import listing, objects
from infra.handler_function import HandlerFunction, HandlerSettings
from infra.timer_function import TimerFunction
from muster.contract.spec.stack_defaults import StackDefaults


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
        package_uri: str,
        defaults: StackDefaults,
        launches_per_second: int,
        timer: TimerFunction,
    ) -> None:
        super().__init__(scope, construct_id)
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
                "MUSTER_PACKAGE_URI": package_uri,
                "MUSTER_DEFAULTS": defaults.to_json().decode(),
                "MUSTER_LAUNCHES_PER_SECOND": str(launches_per_second),
                **timer.environment,
            },
            statements=[
                objects(
                    bucket,
                    ["s3:PutObject"],
                    [
                        "control/*/plan.json",
                        "control/*/lineage.json",
                        "control/*/continued_by.json",
                        "runs/*/document.json",
                    ],
                ),
                # A plan that is there already may be this execution's own; a run may go on where another one ended.
                objects(
                    bucket,
                    ["s3:GetObject"],
                    ["control/*/plan.json", "control/*/result.json", "control/*/continued_by.json", "queue/*"],
                ),
                listing(bucket, ["control/*", "queue/*"]),
                *timer.setting,
            ],
        ).function
