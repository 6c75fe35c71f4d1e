"""The stack: one per account and region. It only composes constructs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk.aws_s3_assets import Asset
from constructs import Construct

import muster
from infra.functions.control_functions import ControlFunctions, FunctionResources
from infra.functions.event_delivery import DeadLetters, EventBus
from infra.functions.handler_function import HandlerSettings
from infra.monitoring.console_links import ConsoleLinks
from infra.monitoring.dashboard import Dashboard
from infra.monitoring.health_alarms import HealthAlarms
from infra.monitoring.introduction import example_input, introduction
from infra.monitoring.watched_resources import WatchedResources
from infra.rendezvous_bucket import InboxTopic, RendezvousBucket
from infra.replica_role import ReplicaRole
from infra.settings.stack_settings import STACK_NAME, StackSettings
from infra.workflow.state_machine import Workflow


@dataclass(frozen=True)
class StackFiles:
    """The files that the stack deploys.

    `bundle` is the functions' code, `replica_package` what runs beside delivered source (both infra.deploy.bundle),
    `definition` the workflow's definition.
    """

    bundle: Path
    replica_package: Path
    definition: Path


class MusterStack(Stack):
    """The control plane."""

    def __init__(self, scope: Construct, settings: StackSettings, files: StackFiles) -> None:
        super().__init__(
            scope,
            STACK_NAME,
            description="Muster: N independent SageMaker training jobs as one DiLoCo run",
            analytics_reporting=False,
        )
        inbox = InboxTopic(self, "Inbox").topic
        bucket = RendezvousBucket(self, "Rendezvous", inbox=inbox, name=settings.bucket_name).bucket
        package = Asset(self, "ReplicaPackage", path=str(files.replica_package))
        replica_role = ReplicaRole(self, "Replica", settings, bucket=bucket, package=package).role
        bus = EventBus(self, "Events").bus
        dead_letters = DeadLetters(self, "DeadLetters").queue
        handlers = HandlerSettings(
            code=lambda_.Code.from_asset(str(files.bundle)),
            dead_letters=dead_letters,
            bus=bus,
            log_retention_days=settings.log_retention_days,
            environment={
                "MUSTER_BUCKET": bucket.bucket_name,
                "MUSTER_JOB_PREFIX": settings.job_prefix,
                "MUSTER_BUS": bus.event_bus_name,
                **_queue_limit(settings),
            },
        )
        resources = FunctionResources(bucket, replica_role, package.s3_object_url, inbox)
        functions = ControlFunctions(self, settings, handlers, resources)
        state_machine = Workflow(
            self, "Workflow", settings, definition=files.definition, functions=functions.in_workflow
        ).state_machine
        functions.connect(state_machine)
        watched = WatchedResources(state_machine, functions.by_name, dead_letters)
        self._watch(settings, watched, bucket=bucket, people=functions.people)
        self._output(
            StateMachineArn=state_machine.state_machine_arn,
            BucketName=bucket.bucket_name,
            JobPrefix=settings.job_prefix,
            ReplicaRoleArn=replica_role.role_arn,
            ReplicaPackageUri=package.s3_object_url,
            ReplicaDefaults=settings.defaults.to_json().decode(),
            EventBusName=bus.event_bus_name,
            NotificationTopicArn=functions.people.topic_arn,
            DeadLetterQueueUrl=dead_letters.queue_url,
            ExampleInput=example_input(settings.defaults, self.region),
            Region=self.region,
            Version=muster.__version__,
        )

    def _watch(
        self, settings: StackSettings, watched: WatchedResources, *, bucket: s3.IBucket, people: sns.Topic
    ) -> None:
        """Alarms and dashboard, unless the deployment does without them."""
        alarms = HealthAlarms(self, "Health", watched, topic=people).alarms if settings.health_alarms else []
        if not settings.dashboard:
            return
        links = ConsoleLinks(self, "Console")
        text = introduction(
            links,
            machine=watched.state_machine.state_machine_arn,
            bucket=bucket.bucket_name,
            stack=self.stack_name,
            example=example_input(settings.defaults, self.region, indent=2),
        )
        dashboard = Dashboard(self, watched, alarms=alarms, text=text)
        self._output(DashboardUrl=links.dashboard(dashboard.name))

    def _output(self, **values: str) -> None:
        for name, value in values.items():
            CfnOutput(self, name, value=value)


def _queue_limit(settings: StackSettings) -> dict[str, str]:
    """The variable that makes runs queue up; absent where the deployment sets no limit."""
    limit = settings.max_concurrent_replicas
    return {} if limit is None else {"MUSTER_MAX_CONCURRENT_REPLICAS": str(limit)}
