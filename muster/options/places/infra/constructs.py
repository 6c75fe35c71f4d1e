"""What a stack with places has besides, what its functions may do there, and the stacks of the places."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import App, CfnOutput, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns

from muster.contract.spec.recipe_reference import RECIPES
from muster.contract.training.network_access import VpcConfig
from muster.contract.training.source_delivery import PACKAGES, SOURCE
from muster.infra.functions.event_delivery import DeadLetters
from muster.infra.functions.function_table import CHANGE_RECORDS
from muster.infra.functions.handler_function import HandlerFunction, HandlerSettings
from muster.infra.functions.notices_queue import NoticesQueue
from muster.infra.functions.triggers import JOB_DETAIL_TYPE, JOB_SOURCE
from muster.infra.policy import Arns, Target, allow, list_under, read
from muster.infra.settings.stack_settings import StackSettings
from muster.infra.stack_option import NOTICES_OF_REPLICAS, Grant, Notices, Resources, StackOption
from muster.options.places.contract.outposts import ENV_PLACES, statement_id
from muster.options.places.infra.home_access import (
    LAUNCHES,
    LOOKS_AFTER,
    bucket_statements,
    deployed_places,
    other_accounts,
    outposts_of,
)
from muster.options.places.infra.outpost_stack import OutpostStack

_DEFAULT_BUS = "default"
"""The bus of an account to which SageMaker sends its events, and the outposts theirs."""


class PlacesPart:
    """What lets the events of other accounts in, and what the functions know of the places."""

    network: VpcConfig | None = None

    def __init__(
        self,
        stack: Stack,
        settings: StackSettings,
        _bucket: s3.IBucket,
        topics: Mapping[Notices, sns.ITopic],
        dead_letters: DeadLetters,
    ) -> None:
        places = deployed_places(settings).to_json().decode()
        self.variables: Mapping[str, str] = {ENV_PLACES: places}
        roles = [one.launcher_role_arn for one in outposts_of(settings)]
        self._notices = NoticesQueue(
            stack,
            "PlaceNotices",
            topic=topics[NOTICES_OF_REPLICAS],
            dead_letters=dead_letters.queue,
            timeout_seconds=_HEED_SECONDS,
        )
        queue = self._notices.queue.queue_arn
        self.arns: Mapping[Target, list[str]] = {Target.PLACE_LAUNCHERS: roles, Target.PLACE_NOTICES: [queue]}
        CfnOutput(stack, "Places", value=places)
        for account, _ in other_accounts(settings):
            _let_job_events_in(stack, account)

    def connect(self, functions: Mapping[str, HandlerFunction], _handlers: HandlerSettings, _arns: Arns) -> None:
        """Let the queue call react."""
        self._notices.call(functions["react"].called)


def _let_job_events_in(stack: Stack, account: str) -> None:
    """Let another account put events of its training jobs on the default bus. It cannot state another account's."""
    statement = iam.PolicyStatement(
        sid=statement_id(stack.stack_name, account),
        principals=[iam.AccountPrincipal(account)],
        actions=["events:PutEvents"],
        resources=[stack.format_arn(service="events", resource="event-bus", resource_name=_DEFAULT_BUS)],
        conditions={"StringEquals": {"events:source": JOB_SOURCE, "events:detail-type": JOB_DETAIL_TYPE}},
    )
    events.CfnEventBusPolicy(
        stack,
        f"EventsOf{account}",
        statement_id=statement_id(stack.stack_name, account),
        event_bus_name=_DEFAULT_BUS,
        statement=statement.to_statement_json(),
    )


def _add_outposts(app: App, settings: StackSettings) -> None:
    for name in sorted(settings.places):
        OutpostStack(app, settings, name)


_KNOWN = (ENV_PLACES,)
_ASSUME = allow(Target.PLACE_LAUNCHERS, "sts:AssumeRole")
_ASSUME_WITH_TAGS = allow(Target.PLACE_LAUNCHERS, "sts:AssumeRole", "sts:TagSession")
_COMMITS = "rendezvous/*/commits/*"
"""Whether the others train on without a replica whose place is silent, and how far the run is from its end."""
_CHOOSE_AND_DELIVER = (
    read(_COMMITS, f"{SOURCE}*", f"{PACKAGES}*", f"{RECIPES}*"),
    list_under(_COMMITS, f"{RECIPES}*"),
    allow(Target.ANY, "pricing:GetProducts"),  # it has no resource level
)
_GIVE_UP = (
    read(_COMMITS),
    list_under(_COMMITS),
    allow(Target.PLACE_NOTICES, "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
)
_HEED_SECONDS = 300  # react

OFFER = StackOption(
    is_asked_for=lambda settings: bool(settings.places),
    resources=Resources(PlacesPart, [NOTICES_OF_REPLICAS]),
    grants={
        "plan": Grant(variables=_KNOWN),
        LAUNCHES: Grant((_ASSUME_WITH_TAGS, *_CHOOSE_AND_DELIVER), _KNOWN),
        **dict.fromkeys(LOOKS_AFTER, Grant((_ASSUME,), _KNOWN)),
        **dict.fromkeys(("sweep", "timer"), Grant((_ASSUME, CHANGE_RECORDS), _KNOWN)),  # jobs that were not stopped
        "react": Grant((_ASSUME, *_GIVE_UP), _KNOWN),
        # What the rounds have moved between places counts for the cost ceiling.
        "scale": Grant((_ASSUME, read(_COMMITS), list_under(_COMMITS)), _KNOWN),
    },
    bucket_statements=bucket_statements,
    add_stacks=_add_outposts,
)
