"""Stacks that options deploy and destroy beside the stack itself (the seam `infra.further_stacks`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from muster.contract.aws.partitions import Locality
from muster.contract.errors import Problem
from muster.infra.deploy.account import Account, DeployedStack
from muster.infra.deploy.deployment import Assembly
from muster.infra.settings.stack_settings import StackSettings
from muster.options import offers


@dataclass(frozen=True)
class Home:
    """The stack beside which they are.

    `deployed` is how it is deployed, if it is; `settings` are those of the next deployment, or none of any option where
    the stack is destroyed. `environment` and `profile` are those of the command.
    """

    account: Account
    place: Locality
    deployed: DeployedStack | None
    settings: StackSettings
    environment: Mapping[str, str]
    profile: str | None = None


class FurtherStacks(Protocol):
    """An option's stacks beside one stack: those that the settings ask for, and those that they do no longer."""

    def problems(self) -> Iterable[Problem]:
        """What forbids to deploy the former, or to delete the latter."""

    def warnings(self) -> Iterable[str]:
        """What stays of the latter, because nothing can be deleted there now, with what to do about it."""

    def changes(self, assembly: Assembly) -> Mapping[str, list[str]]:
        """What a deployment would change, one line for each resource, by the names of stacks."""

    def deploy(self, assembly: Assembly, bucket: str) -> None:
        """Deploy those that the settings ask for. `bucket` is that of the stack itself."""

    def remove(self, *, delete_data: bool) -> list[str]:
        """Delete those that the settings do not ask for; the names of the buckets that stay."""


@dataclass(frozen=True)
class FurtherOffer:
    """An option's stacks."""

    beside: Callable[[Home], FurtherStacks]


def further_stacks(home: Home) -> list[FurtherStacks]:
    """The stacks of all options beside one stack."""
    return [offer.beside(home) for offer in offers("infra.further_stacks", FurtherOffer)]
