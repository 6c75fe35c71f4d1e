"""Which runs of a stack a list shows. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from muster.client.runs.run_state import RunState
from muster.contract.aws.failure_classes import FailureClass

if TYPE_CHECKING:
    from muster.client.aws.reported import ExecutionSummary

_WILD = frozenset("*?[")


@dataclass(frozen=True)
class RunFilter:
    """The conditions that a run must meet; one that is None is met by every run."""

    state: RunState | None = None
    since: datetime | None = None
    """It started then or later."""
    until: datetime | None = None
    """It started earlier."""
    name: str | None = None
    """What its name begins with, or a pattern with `*`, `?` or `[abc]` that the whole name matches."""
    reason: str | None = None
    """Words in the reason for its end, in upper or lower case."""
    failure: FailureClass | None = None
    """An attempt of it has ended so."""

    def is_past(self, item: ExecutionSummary) -> bool:
        """Whether the execution, and every older one, is too old."""
        return self.since is not None and item.started_at < self.since

    def may_be(self, item: ExecutionSummary, state: RunState | None) -> bool:
        """Whether an execution can be such a run; `state` is that of its run, or None where only a look shows it."""
        if self.until is not None and item.started_at >= self.until:
            return False
        return self._has_name(item.name) and (state is None or self.state in {None, state})

    def is_met(self, state: RunState, reason: str, failures: Collection[str]) -> bool:
        """Whether a run that ended so meets the other conditions, too."""
        if self.state not in {None, state}:
            return False
        if self.reason is not None and self.reason.casefold() not in reason.casefold():
            return False
        return self.failure is None or self.failure in failures

    def _has_name(self, name: str) -> bool:
        if self.name is None:
            return True
        return fnmatchcase(name, self.name) if _WILD & set(self.name) else name.startswith(self.name)
