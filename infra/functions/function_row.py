"""A function of the control plane, as a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from muster.infra.functions.event_delivery import RuleSettings
from muster.infra.functions.triggers import TriggerContext, no_rules
from muster.infra.policy import Statement, Target


@dataclass(frozen=True)
class FunctionRow:
    """One function of the table.

    `variables` names the environment variables that it has besides those of all functions. `in_workflow` means that
    the workflow's definition calls it, `starts_continuations` that it may start the run that continues another one,
    `cancels_runs` that it ends cancelled runs, and their continuations with them. `in_network` means that it is in
    the VPC of a stack that has one. `snap_start` means that it starts from a snapshot in a stack that has them.
    """

    name: str
    description: str
    timeout_seconds: int
    memory_mb: int
    statements: Sequence[Statement]
    variables: Sequence[str] = ()
    triggers: Callable[[TriggerContext], list[RuleSettings]] = no_rules
    in_workflow: bool = False
    starts_continuations: bool = False
    cancels_runs: bool = False
    in_network: bool = False
    snap_start: bool = False

    @property
    def targets(self) -> frozenset[Target]:
        """What the statements name: all of it must exist before the function."""
        return frozenset(statement.target for statement in self.statements)
