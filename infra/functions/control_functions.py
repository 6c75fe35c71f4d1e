"""The functions of the table, made and connected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from muster.contract.training.model_source import PUBLIC_HUB
from muster.infra.functions.event_delivery import EventRule, RuleSettings
from muster.infra.functions.function_table import FUNCTIONS, START_RUNS, STOP_CONTINUATIONS, FunctionRow
from muster.infra.functions.handler_function import HandlerFunction, HandlerSettings
from muster.infra.functions.triggers import TriggerContext
from muster.infra.launcher_role import LauncherRole
from muster.infra.policy import Target, job_targets, policy_statements, service_of_account
from muster.infra.settings.stack_settings import StackSettings
from muster.infra.stack_option import StackOption, StackPart


@dataclass(frozen=True)
class FunctionResources:
    """The resources that the functions use, apart from those in HandlerSettings."""

    bucket: s3.IBucket
    replica_role: iam.IRole
    inbox: sns.ITopic
    options: Sequence[StackOption] = ()
    parts: Sequence[StackPart] = ()
    """What options add."""


class ControlFunctions:
    """Makes each function as soon as everything exists that its row names.

    Some functions are called by the state machine, others name it: `connect` makes those when it exists. Each function
    is in a construct of its own name, with the resources that belong to it alone.
    """

    def __init__(
        self, stack: Stack, settings: StackSettings, handlers: HandlerSettings, resources: FunctionResources
    ) -> None:
        self._stack = stack
        self._settings = settings
        self._handlers = handlers
        self._inbox = resources.inbox
        self._parts = resources.parts
        self._rows = [*_rows(resources.options)]
        self._scopes = {row.name: Construct(stack, row.name.capitalize()) for row in self._rows}
        self._made: dict[str, HandlerFunction] = {}
        self.people = self._people_topic(settings.notify.email)
        self._arns = self._arns_of(resources, handlers)
        self._variables = {
            "MUSTER_REPLICA_ROLE_ARN": resources.replica_role.role_arn,
            "MUSTER_DEFAULTS": settings.defaults.to_json().decode(),
            "MUSTER_LAUNCHES_PER_SECOND": str(settings.runs.launches_per_second),
            "MUSTER_TOPIC_ARN": self.people.topic_arn,
        }
        for part in self._parts:
            self._arns |= part.arns
            self._variables |= part.variables
        self._make_ready()
        LauncherRole(stack, "Launcher", arns=self._arns, attempt=self._made["attempt"].function)
        self._allow_timers()  # plan passes this role to EventBridge Scheduler
        self._make_ready()

    def _arns_of(self, resources: FunctionResources, handlers: HandlerSettings) -> dict[Target, Sequence[str]]:
        """The resources of each target, but those of options."""
        stack, settings = self._stack, self._settings
        key = settings.defaults.kms_key_id
        return {
            Target.ANY: ["*"],
            Target.BUCKET: [resources.bucket.bucket_arn],
            Target.OBJECTS: [resources.bucket.bucket_arn],
            Target.RESULTS_KEY: [] if key is None else [key],
            **job_targets(stack, settings.job_prefix),
            Target.RECIPE_SOURCES: _object_arns(stack, settings.recipes.sources),
            Target.PUBLIC_HUB: [
                stack.format_arn(service="sagemaker", account="aws", resource=resource, resource_name=name)
                for resource, name in (("hub", PUBLIC_HUB), ("hub-content", f"{PUBLIC_HUB}/Model/*"))
            ],
            Target.REPLICA_ROLE: [resources.replica_role.role_arn, *settings.replicas.further_role_arns],
            Target.TIMERS: [
                stack.format_arn(
                    service="scheduler", resource="schedule", resource_name=f"default/{settings.job_prefix}-*"
                )
            ],
            Target.BUS: [handlers.bus.event_bus_arn],
            Target.TOPIC: [self.people.topic_arn],
        }

    @property
    def by_name(self) -> Mapping[str, lambda_.Function]:
        """All functions, in the order of the table."""
        return {row.name: self._made[row.name].function for row in self._rows}

    @property
    def in_workflow(self) -> Mapping[str, lambda_.IFunction]:
        """The functions that the workflow calls, by the placeholders of its definition."""
        return {
            f"{row.name.capitalize()}FunctionArn": self._made[row.name].called for row in self._rows if row.in_workflow
        }

    def connect(self, state_machine: sfn.StateMachine) -> None:
        """Make the functions that name the state machine, and connect the rules and the inbox with their functions."""
        self._arns[Target.STATE_MACHINE] = [state_machine.state_machine_arn]
        self._arns[Target.EXECUTIONS] = [
            self._stack.format_arn(
                service="states",
                resource="execution",
                resource_name=f"{state_machine.state_machine_name}:*",
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
        ]
        self._variables["MUSTER_STATE_MACHINE_ARN"] = state_machine.state_machine_arn
        self._make_ready()
        self._allow_continuations()
        # S3 cannot send to the function itself: the function's role names the bucket, so neither could be made first.
        self._inbox.add_subscription(
            subscriptions.LambdaSubscription(
                self._made["start"].called, dead_letter_queue=self._handlers.dead_letters.queue
            )
        )
        for part in self._parts:
            part.connect(self._made, self._handlers, self._arns)
        context = TriggerContext(self._settings, state_machine.state_machine_arn, self._handlers.bus)
        for row in self._rows:
            for rule in row.triggers(context):
                EventRule(
                    self._scopes[row.name],
                    rule,
                    function=self._made[row.name].called,
                    dead_letters=self._handlers.dead_letters,
                )

    def _make_ready(self) -> None:
        for row in self._rows:
            if row.name not in self._made and row.targets <= self._arns.keys():
                self._made[row.name] = self._make(row)

    def _make(self, row: FunctionRow) -> HandlerFunction:
        return HandlerFunction(
            self._scopes[row.name],
            row,
            self._handlers,
            arns=self._arns,
            environment={name: self._variables[name] for name in row.variables},
        )

    def _people_topic(self, email: str | None) -> sns.Topic:
        """The topic to which people subscribe.

        A function writes to it, because EventBridge alone can set neither the subject of a mail nor its lines.
        """
        topic = sns.Topic(self._scopes["notify"], "People", display_name="Muster", enforce_ssl=True)
        if email is not None:
            # SNS asks the address for confirmation.
            topic.add_subscription(subscriptions.EmailSubscription(email))
        return topic

    def _allow_timers(self) -> None:
        """A role under which EventBridge Scheduler calls functions for runs; plan passes it to each schedule."""
        called = {row.name: self._made[row.name].called.function_arn for row in self._rows if row.on_schedule}
        call = iam.PolicyStatement(actions=["lambda:InvokeFunction"], resources=[*called.values()])
        role = iam.Role(
            self._scopes["timer"],
            "Scheduler",
            description="Muster: calls functions when a schedule of a run is due",
            assumed_by=service_of_account("scheduler.amazonaws.com", self._stack.account),
            inline_policies={"Timer": iam.PolicyDocument(statements=[call])},
        )
        self._arns[Target.TIMER_ROLE] = [role.role_arn]
        self._variables |= {f"MUSTER_{name.upper()}_FUNCTION_ARN": arn for name, arn in called.items()}
        self._variables["MUSTER_TIMER_ROLE_ARN"] = role.role_arn

    def _allow_continuations(self) -> None:
        """Let the functions that end a run start its continuation, and stop it for a cancel.

        A policy of its own: the roles of functions that the state machine calls cannot name the state machine, which
        would depend on itself.
        """
        starting = [self._made[row.name].function.role for row in self._rows if row.starts_continuations]
        cancelling = [self._made[row.name].function.role for row in self._rows if row.cancels_runs]
        continuations = Construct(self._stack, "Continuations")
        for name, roles, statements in (
            ("Policy", starting, START_RUNS),
            ("Cancellation", cancelling, STOP_CONTINUATIONS),
        ):
            iam.Policy(
                continuations,
                name,
                roles=[role for role in roles if role is not None],
                statements=policy_statements(statements, self._arns),
            )


def _made_by(
    makers: Sequence[Callable[[TriggerContext], list[RuleSettings]]], context: TriggerContext
) -> list[RuleSettings]:
    return [rule for make in makers for rule in make(context)]


def _rows(options: Sequence[StackOption]) -> Iterator[FunctionRow]:
    """The functions of a stack, each with what `options` grant it."""
    own = {name: row for option in options for name, row in option.rows.items()}
    for row in (one for first in FUNCTIONS for one in (first, *([own[first.name]] if first.name in own else ()))):
        grants = [option.grants[row.name] for option in options if row.name in option.grants]
        makers = [row.triggers, *(grant.triggers for grant in grants)]
        yield replace(
            row,
            statements=[*row.statements, *(one for grant in grants for one in grant.statements)],
            variables=[*row.variables, *(one for grant in grants for one in grant.variables)],
            triggers=partial(_made_by, makers),
            in_network=row.in_network or bool(grants),
        )


def _object_arns(stack: Stack, uris: Iterable[str]) -> list[str]:
    """The objects below prefixes of buckets (`s3://bucket/prefix/`) and of access points (`s3://arn:…/prefix/`)."""
    return [_objects_arn(stack, uri.removeprefix("s3://")) for uri in uris]


def _objects_arn(stack: Stack, name: str) -> str:
    if name.startswith("arn:"):
        kind, point, prefix = name.split("/", 2)
        return f"{kind}/{point}/object/{prefix}*"
    return f"{stack.format_arn(service='s3', region='', account='', resource=name)}*"
