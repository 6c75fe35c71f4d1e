"""What options say about the settings of a deployment, before anything is changed (the seam `infra.settings`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.contract.errors import Problem
from muster.options import offers

if TYPE_CHECKING:
    from muster.infra.deploy.account import Account
    from muster.infra.settings.stack_settings import StackSettings


@dataclass(frozen=True)
class SettingsOffer:
    """What an option says of its tables."""

    problems: Callable[[StackSettings], Iterable[Problem]]
    """What holds between several keys, each of which is right by itself."""
    local_tables: Callable[[Mapping[str, str]], Mapping[str, Any]]
    """The tables of a stack on the embedded cloud, from the environment of a shell that uses it."""
    preflight: Callable[[Account, StackSettings], Iterable[Problem]]
    """What would make a deployment to the account fail."""


def settings_offers() -> list[SettingsOffer]:
    """What all options say."""
    return [*offers("infra.settings", SettingsOffer)]
