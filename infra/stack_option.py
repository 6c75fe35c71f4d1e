"""What options add to a stack whose settings ask for it (the seam `infra.constructs`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from muster.contract.run.notices import NOTICES
from muster.infra.functions.triggers import no_rules
from muster.options import offers

if TYPE_CHECKING:
    from aws_cdk import App, Stack
    from aws_cdk import aws_iam as iam
    from aws_cdk import aws_s3 as s3
    from aws_cdk import aws_sns as sns

    from muster.contract.training.network_access import VpcConfig
    from muster.infra.functions.event_delivery import DeadLetters, RuleSettings
    from muster.infra.functions.function_table import FunctionRow
    from muster.infra.functions.handler_function import HandlerFunction, HandlerSettings
    from muster.infra.functions.triggers import TriggerContext
    from muster.infra.policy import Arns, Statement, Target
    from muster.infra.settings.stack_settings import StackSettings


@dataclass(frozen=True)
class Notices:
    """Small objects that replicas write under `prefix`, for each of which the bucket writes to a topic.

    `name` is a part of the topic's name, its construct's and its lifecycle rule's; `expiry_days`: how long they stay.
    """

    name: str
    display_name: str
    prefix: str
    suffix: str
    expiry_days: int

    def topic_name(self, stack: str) -> str:
        """The name of the topic that the bucket of `stack` notifies."""
        return f"{stack}-{self.name}"


@dataclass(frozen=True)
class Grant:
    """What a function of the core gets besides: rights, variables, rules that call it, the network of the option."""

    statements: Sequence[Statement] = ()
    variables: Sequence[str] = ()
    triggers: Callable[[TriggerContext], list[RuleSettings]] = no_rules


NOTICES_OF_REPLICAS = Notices("notices", "Muster: notices of replicas", NOTICES, ".json", expiry_days=30)
"""Each is read when it is written. Afterwards it says how a container ended, for those who look."""


class StackPart(Protocol):
    """An option's part of one stack, made before the functions."""

    @property
    def arns(self) -> Mapping[Target, Sequence[str]]:
        """What the statements of its grants and rows name."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The values of their variables."""

    @property
    def network(self) -> VpcConfig | None:
        """Where the functions are to which it grants something; None: in no VPC."""

    def connect(self, functions: Mapping[str, HandlerFunction], handlers: HandlerSettings, arns: Arns) -> None:
        """Add what names the functions, when all of them exist."""


@dataclass(frozen=True)
class Resources:
    """The part of a stack that an option makes before the functions; `build` gets the topics of its notices."""

    build: Callable[[Stack, StackSettings, s3.IBucket, Mapping[Notices, sns.ITopic], DeadLetters], StackPart]
    notices: Sequence[Notices] = ()


def _no_statements(_settings: StackSettings, _bucket_arn: str) -> list[iam.PolicyStatement]:
    return []


def _no_stacks(_app: App, _settings: StackSettings) -> None:
    return


@dataclass(frozen=True)
class StackOption:
    """An option's constructs."""

    is_asked_for: Callable[[StackSettings], bool]
    resources: Resources | None = None
    grants: Mapping[str, Grant] = field(default_factory=dict)
    """By the names of functions."""
    rows: Mapping[str, FunctionRow] = field(default_factory=dict)
    """Functions of its own, by the function of the core that each follows."""
    bucket_statements: Callable[[StackSettings, str], list[iam.PolicyStatement]] = _no_statements
    """Statements of the policy of the bucket with an ARN."""
    add_stacks: Callable[[App, StackSettings], object] = _no_stacks
    """Adds stacks of its own to the app."""


def stack_options(settings: StackSettings) -> list[StackOption]:
    """The options for which `settings` ask."""
    return [one for one in offers("infra.constructs", StackOption) if one.is_asked_for(settings)]


def notices_of(options: Iterable[StackOption]) -> list[Notices]:
    """The notices of options, each once."""
    found = (notices for one in options if one.resources is not None for notices in one.resources.notices)
    return list(dict.fromkeys(found))
