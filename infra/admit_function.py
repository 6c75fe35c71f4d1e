"""Turn: runs queue up where the stack caps its concurrent replicas."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from infra.access import complete_tasks, listing, objects
from infra.handler_function import HandlerFunction, HandlerSettings


def queue_access(bucket: s3.IBucket) -> list[iam.PolicyStatement]:
    """Give a turn back and call the next."""
    return [
        objects(bucket, ["s3:GetObject", "s3:PutObject"], ["queue/*"]),
        objects(bucket, ["s3:GetObject"], ["control/*/turn.json"]),
        complete_tasks(),
    ]


class AdmitFunction(Construct):
    """Called by the workflow before the first launch, in stacks with a cap only."""

    def __init__(self, scope: Construct, construct_id: str, *, settings: HandlerSettings, bucket: s3.IBucket) -> None:
        super().__init__(scope, construct_id)
        self.function = HandlerFunction(
            self,
            "Handler",
            name="admit",
            description="Muster: gives runs their turn under the cap on concurrent replicas",
            settings=settings,
            timeout=Duration.seconds(60),
            memory_mb=512,
            statements=[
                *queue_access(bucket),
                objects(bucket, ["s3:GetObject"], ["control/*/plan.json", "control/*/result.json"]),
                objects(bucket, ["s3:PutObject"], ["control/*/turn.json"]),
                listing(bucket, ["control/*", "queue/*"]),
            ],
        ).function
