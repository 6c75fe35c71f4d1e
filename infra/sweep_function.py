"""Sweep: nothing outlives its run, even where an event was lost."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.clear_up_access import clear_up_access
from infra.event_rule import EventRule
from infra.handler_function import HandlerFunction, HandlerSettings


class SweepFunction(Construct):
    """Woken every `hours`; with 0 there is no schedule, and the function costs nothing until somebody invokes it."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: HandlerSettings,
        bucket: s3.IBucket,
        job_prefix: str,
        results_key: str | None,
        state_machine: sfn.IStateMachine,
        hours: int,
    ) -> None:
        super().__init__(scope, construct_id)
        machine = state_machine.state_machine_arn
        self.function = HandlerFunction(
            self,
            "Handler",
            name="sweep",
            description="Muster: settles runs whose end was missed and stops jobs that outlived their run",
            settings=settings,
            # As long as stop has: it does the same work.
            timeout=Duration.seconds(900),
            memory_mb=1024,
            environment={"MUSTER_STATE_MACHINE_ARN": machine},
            statements=[
                *clear_up_access(Stack.of(self), bucket, job_prefix, results_key),
                iam.PolicyStatement(actions=["states:ListExecutions"], resources=[machine]),
            ],
        ).function
        if hours:
            EventRule(
                self,
                "Schedule",
                description="Muster: looks for what has outlived its run",
                schedule=events.Schedule.rate(Duration.hours(hours)),
                function=self.function,
                dead_letters=settings.dead_letters,
            )
