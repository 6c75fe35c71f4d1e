"""The stack, which only composes constructs; and the stack that CloudFormation deploys by itself, without the CDK."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from aws_cdk import (
    App,
    CfnOutput,
    CfnParameter,
    DefaultStackSynthesizer,
    Environment,
    IStackSynthesizer,
    PermissionsBoundary,
    Stack,
    Tags,
    Token,
)
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

import muster
from muster.contract.errors import ConfigurationError
from muster.contract.training.source_delivery import package_key
from muster.infra.build_places import WORKFLOW
from muster.infra.deploy.bundle import build_bundle, build_replica_package
from muster.infra.deploy.cdk_tools import ASSETS_PREFIX
from muster.infra.encryption import encrypt_with
from muster.infra.functions.control_functions import ControlFunctions, FunctionResources
from muster.infra.functions.event_delivery import DeadLetters, EventBus
from muster.infra.functions.handler_function import HandlerSettings
from muster.infra.monitoring.console_links import ConsoleLinks
from muster.infra.monitoring.dashboard import Dashboard
from muster.infra.monitoring.health_alarms import HealthAlarms, WatchedResources
from muster.infra.monitoring.introduction import StockRegistry, example_input, introduction
from muster.infra.rendezvous_bucket import (
    BucketTopic,
    RendezvousBucket,
    inbox_topic_name,
)
from muster.infra.replica_role import ReplicaRole
from muster.infra.settings.stack_settings import (
    SETTINGS_METADATA,
    BucketTable,
    Platform,
    StackSettings,
    snap_start_problems,
)
from muster.infra.stack_option import Notices, notices_of, stack_options
from muster.infra.workflow.state_machine import Workflow


@dataclass(frozen=True)
class StackFiles:
    """The files that the stack deploys.

    `bundle` is the functions' code, `replica_package` what runs beside delivered source and is a part of the bundle
    (both muster.infra.deploy.bundle), `definition` the workflow's definition.
    """

    bundle: Path
    replica_package: Path
    definition: Path

    @classmethod
    def built(cls, platform: Platform) -> StackFiles:
        """The files of this version, for functions on `platform`.

        Raises:
            BundleError: the functions' dependencies could not be installed.
        """
        return cls(build_bundle(platform), build_replica_package(), WORKFLOW)


_FEATURE_FLAGS: dict[str, object] = {
    "@aws-cdk/aws-events:eventsTargetQueueSameAccount": True,
    "@aws-cdk/aws-iam:minimizePolicies": False,
    # A version of a function is a new one where Lambda's own would be: not where a tag changes.
    "@aws-cdk/aws-lambda:recognizeVersionProps": True,
    "@aws-cdk/core:checkSecretUsage": True,
    "@aws-cdk/core:target-partitions": ["aws", "aws-cn", "aws-us-gov"],
}


class CdkOptions(TypedDict, total=False):
    """What a stack of any app may have."""

    env: Environment
    """The account and the region, where the app chooses them."""
    synthesizer: IStackSynthesizer
    """How the functions' code reaches the account."""


class MusterStack(Stack):
    """The control plane, in an app of its own or in another one.

    Args:
        scope: an app, or a stage of one.
        construct_id: also the stack's name in CloudFormation, from which the names of some resources follow.
        settings: what `muster.toml` chooses in a deployment of its own; the defaults by default.
        files: what is deployed; built for AWS by default.
        **options: of every stack: its environment and its synthesizer.

    Attributes:
        bucket: with the results of all runs, and the rendezvous of their replicas.
        bus: the event bus, with Muster's events.
        notifications: the topic that is written to when a run ends.
        replica_role: of the training jobs.
        state_machine: a run is an execution of it.

    Raises:
        ConfigurationError: the settings name another stack, or ask for snapshots in a region without.
        ValidationError: no stack can have this name.
        BundleError: the functions' dependencies could not be installed.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: StackSettings | None = None,
        files: StackFiles | None = None,
        **options: Unpack[CdkOptions],
    ) -> None:
        settings = _named(settings or StackSettings(), construct_id)
        files = files or StackFiles.built(Platform.AWS)
        super().__init__(
            scope,
            construct_id,
            stack_name=construct_id,
            description="Muster: N independent SageMaker training jobs as one DiLoCo run",
            analytics_reporting=False,
            permissions_boundary=_boundary(settings.stack.permissions_boundary),
            **options,
        )
        for problem in snap_start_problems(settings, None if Token.is_unresolved(self.region) else self.region):
            raise ConfigurationError(str(problem))
        # The same template in every app, whatever flags that app has.
        for flag, value in _FEATURE_FLAGS.items():
            self.node.set_context(flag, value)
        # The next deployment shows what changes.
        self.template_options.metadata = {SETTINGS_METADATA: settings.tables}
        for key, value in settings.stack.tags.items():
            Tags.of(self).add(key, value)
        inbox = BucketTopic(
            self, "Inbox", name=inbox_topic_name(settings.stack.name), display_name="Muster: specs in the inbox"
        ).topic
        added = stack_options(settings)
        notices = {one: _topic(self, one) for one in notices_of(added)}
        bucket = _bucket(self, settings, inbox, notices)
        replica_role: iam.IRole = ReplicaRole(self, "Replica", settings, bucket=bucket, notices=notices).role
        bus = EventBus(self, "Events").bus
        dead_letters = DeadLetters(self, "DeadLetters")
        made = [one.resources for one in added if one.resources is not None]
        parts = [one.build(self, settings, bucket, notices, dead_letters) for one in made]
        handlers = HandlerSettings(
            code=lambda_.Code.from_asset(str(files.bundle)),
            dead_letters=dead_letters,
            bus=bus,
            log_retention_days=settings.watch.log_retention_days,
            kms_key_arn=settings.stack.kms_key_arn,
            network=next((part.network for part in parts if part.network is not None), None),
            snap_start=settings.runs.snap_start,
            bucket_name=settings.bucket.name or "",
            environment={
                "MUSTER_BUCKET": bucket.bucket_name,
                "MUSTER_JOB_PREFIX": settings.job_prefix,
                "MUSTER_BUS": bus.event_bus_name,
                **_queue_limit(settings),
            },
        )
        resources = FunctionResources(bucket, replica_role, inbox, added, parts)
        functions = ControlFunctions(self, settings, handlers, resources)
        state_machine = Workflow(
            self, "Workflow", settings, definition=files.definition, functions=functions.in_workflow
        ).state_machine
        functions.connect(state_machine)
        self.bucket, self.bus, self.replica_role = bucket, bus, replica_role
        self.state_machine, self.notifications = state_machine, functions.people
        watched = WatchedResources(state_machine, functions.by_name, dead_letters.queue, settings.job_prefix)
        # With a default image the example needs none of AWS's.
        registry = None if settings.defaults.image is not None else StockRegistry(self, "StockImages").name
        example = example_input(registry, indent=2)
        self._watch(settings, watched, bucket=bucket, people=functions.people, example=example)
        self._output(
            StateMachineArn=state_machine.state_machine_arn,
            BucketName=bucket.bucket_name,
            JobPrefix=settings.job_prefix,
            ReplicaRoleArn=replica_role.role_arn,
            ReplicaPackageUri=bucket.s3_url_for_object(package_key(_digest(files.replica_package))),
            ReplicaDefaults=settings.defaults.to_json().decode(),
            EventBusName=bus.event_bus_name,
            NotificationTopicArn=functions.people.topic_arn,
            DeadLetterQueueUrl=dead_letters.queue.queue_url,
            # Lambda's dead letters do not name their function: a client derives it from the event.
            FunctionNames=self.to_json_string(
                {name: function.function_name for name, function in functions.by_name.items()}
            ),
            ExampleInput=example_input(registry),
            Region=self.region,
            Version=muster.__version__,
        )
        if settings.stack.kms_key_arn is not None:
            encrypt_with(self, settings.stack.kms_key_arn)
            self._output(KeyArn=settings.stack.kms_key_arn)

    def _watch(
        self, settings: StackSettings, watched: WatchedResources, *, bucket: s3.IBucket, people: sns.Topic, example: str
    ) -> None:
        """Alarms and dashboard, unless the deployment does without them; the dashboard shows the spec `example`."""
        alarms = HealthAlarms(self, "Health", watched, topic=people).alarms if settings.watch.health_alarms else []
        if not settings.watch.dashboard:
            return
        links = ConsoleLinks(self, "Console")
        text = introduction(
            links,
            machine=watched.state_machine.state_machine_arn,
            bucket=bucket.bucket_name,
            stack=self.stack_name,
            example=example,
        )
        dashboard = Dashboard(self, watched, alarms=alarms, text=text)
        self._output(DashboardUrl=links.dashboard(dashboard.name))

    def _output(self, **values: str) -> None:
        for name, value in values.items():
            CfnOutput(self, name, value=value)


def bucket_template(settings: StackSettings) -> dict[str, Any]:
    """The template of the bucket that a stack with these settings would make, by itself."""
    name = settings.stack.name
    with tempfile.TemporaryDirectory() as folder:
        app = App(outdir=folder, analytics_reporting=False)
        stack = Stack(app, "Bucket")

        def topic(construct_id: str, topic_name: str) -> sns.ITopic:
            arn = stack.format_arn(service="sns", resource=topic_name)
            return sns.Topic.from_topic_arn(stack, construct_id, arn)

        inbox = topic("Inbox", inbox_topic_name(name))
        kinds = notices_of(stack_options(settings))
        notices = {one: topic(one.name.capitalize(), one.topic_name(name)) for one in kinds}
        made = RendezvousBucket(stack, "Rendezvous", inbox=inbox, table=BucketTable(), notices=notices).bucket
        _allow_options(made, settings)
        template: dict[str, Any] = app.synth().get_stack_by_name("Bucket").template
    return template


def _named(settings: StackSettings, name: str) -> StackSettings:
    """The settings of the stack `name`."""
    written = settings.stack.name if "name" in settings.stack.model_fields_set else name
    if written != name:
        message = f"The construct is {name} and its settings name the stack {written}: write the same name, or none."
        raise ConfigurationError(message)
    if settings.stack.name == name:
        return settings
    tables = settings.tables
    return StackSettings.model_validate({**tables, "stack": {**tables.get("stack", {}), "name": name}})


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _boundary(arn: str | None) -> PermissionsBoundary | None:
    return None if arn is None else PermissionsBoundary.from_arn(arn)


def _topic(stack: MusterStack, notices: Notices) -> sns.ITopic:
    """The topic of an option's notices."""
    name, shown = notices.topic_name(stack.stack_name), notices.display_name
    return BucketTopic(stack, notices.name.capitalize(), name=name, display_name=shown).topic


def _bucket(
    stack: Stack, settings: StackSettings, inbox: sns.ITopic, notices: Mapping[Notices, sns.ITopic]
) -> s3.IBucket:
    """The stack's own bucket, or the one that the settings name."""
    table = settings.bucket
    if table.existing is not None:
        return s3.Bucket.from_bucket_name(stack, "Rendezvous", table.existing)
    bucket = RendezvousBucket(stack, "Rendezvous", inbox=inbox, table=table, notices=notices).bucket
    _allow_options(bucket, settings)
    return bucket


def _allow_options(bucket: s3.IBucket, settings: StackSettings) -> None:
    for option in stack_options(settings):
        for statement in option.bucket_statements(settings, bucket.bucket_arn):
            bucket.add_to_resource_policy(statement)


def _queue_limit(settings: StackSettings) -> dict[str, str]:
    """The variable that makes runs queue up; absent where the deployment sets no limit."""
    limit = settings.runs.max_concurrent_replicas
    return {} if limit is None else {"MUSTER_MAX_CONCURRENT_REPLICAS": str(limit)}


_BUCKET, _PREFIX = "AssetsBucket", "AssetsPrefix"


def published_stack(app: App, settings: StackSettings, files: StackFiles) -> MusterStack:
    """The stack with the parameters `AssetsBucket` and `AssetsPrefix` in the place of the CDK's own bucket.

    They name where the functions' code lies: Lambda reads it from a bucket of the stack's own region.
    """
    synthesizer = DefaultStackSynthesizer(
        file_assets_bucket_name=f"${{{_BUCKET}}}",
        bucket_prefix=f"${{{_PREFIX}}}",
        generate_bootstrap_version_rule=False,
    )
    stack = MusterStack(app, settings.stack.name, settings=settings, files=files, synthesizer=synthesizer)
    CfnParameter(
        stack,
        _BUCKET,
        description="Bucket of this region with the files that lie beside this template",
        allowed_pattern=r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
        constraint_description="must be the name of a bucket, without s3://",
    )
    CfnParameter(
        stack,
        _PREFIX,
        description="First part of their keys, with a slash at its end; empty where they lie at the top of the bucket",
        default=ASSETS_PREFIX,
        allowed_pattern=r"([^/].*/)?",
        constraint_description="must be empty or end with a slash, and not begin with one",
    )
    return stack
