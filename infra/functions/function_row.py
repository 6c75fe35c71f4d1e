"""A function of the control plane, as a row of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from muster.infra.functions.event_delivery import RuleSettings
from muster.infra.functions.triggers import TriggerContext, no_rules
from muster.infra.policy import Statement, Target
from muster.options.hyperpod.infra.kubernetes_rules import Rules


@dataclass(frozen=True)
class FunctionRow:
    """One function of the table.

    `variables` names the environment variables that it has besides those of all functions. `in_workflow` means that
    the workflow's definition calls it, `starts_continuations` that it may start the run that continues another one,
    `cancels_runs` that it ends cancelled runs, and their continuations with them. `on_clusters` is what it may do on
    the clusters of a stack that has some, and None where it calls no cluster; `cluster_variables` are variables that
    it has in such a stack alone; `only_with_clusters` means that no other stack has the function. `snap_start` means
    that it starts from a snapshot in a stack that has them.
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
    on_clusters: Rules | None = None
    cluster_variables: Sequence[str] = ()
    only_with_clusters: bool = False
    snap_start: bool = False

    @property
    def targets(self) -> frozenset[Target]:
        """What the statements name: all of it must exist before the function."""
        return frozenset(statement.target for statement in self.statements)
