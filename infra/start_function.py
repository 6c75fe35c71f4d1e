"""Start: runs that are asked for by an object in the inbox or by an event."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.access import listing, objects
from infra.event_rule import EventRule
from infra.handler_function import HandlerFunction, HandlerSettings
from infra.schedules import ScheduledRun
from muster.contract.run.run_events import RUN_REQUESTED


class StartFunction(Construct):
    """The one function that starts executions."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: HandlerSettings,
        bucket: s3.IBucket,
        inbox: sns.ITopic,
        state_machine: sfn.StateMachine,
        schedules: Sequence[ScheduledRun],
    ) -> None:
        super().__init__(scope, construct_id)
        executions = Stack.of(self).format_arn(
            service="states",
            resource="execution",
            resource_name=f"{state_machine.state_machine_name}:*",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
        self.function = HandlerFunction(
            self,
            "Handler",
            name="start",
            description="Muster: starts the runs that are asked for by events",
            settings=settings,
            timeout=Duration.seconds(60),
            memory_mb=512,
            environment={"MUSTER_STATE_MACHINE_ARN": state_machine.state_machine_arn},
            statements=[
                objects(bucket, ["s3:GetObject"], ["inbox/*"]),
                objects(bucket, ["s3:DeleteObject", "s3:PutObject"], ["inbox/*.error.txt"]),
                listing(bucket, ["inbox/*"]),
                iam.PolicyStatement(actions=["states:StartExecution"], resources=[state_machine.state_machine_arn]),
                # Whether an execution of the same name is the same run.
                iam.PolicyStatement(actions=["states:DescribeExecution"], resources=[executions]),
            ],
        ).function
        inbox.add_subscription(subscriptions.LambdaSubscription(self.function, dead_letter_queue=settings.dead_letters))
        EventRule(
            self,
            "Requests",
            description="Muster: runs that are asked for",
            bus=settings.bus,
            pattern=events.EventPattern(detail_type=[RUN_REQUESTED]),
            function=self.function,
            dead_letters=settings.dead_letters,
        )
        for schedule in schedules:
            spec = {"spec": schedule.spec} if schedule.spec_key is None else {"spec_key": schedule.spec_key}
            wish = {"name": schedule.name, "at": events.EventField.time, **spec}
            EventRule(
                self,
                f"Schedule-{schedule.name}",
                description=f"Muster: {schedule.name}, {schedule.expression}",
                schedule=events.Schedule.expression(schedule.expression),
                message=events.RuleTargetInput.from_object({"schedule": wish}),
                function=self.function,
                dead_letters=settings.dead_letters,
            )
