"""The runs of a stack, one line each.

A list costs a call for each 100 runs, one LIST of the days on which runs ended, and a GET for each of those days: no
run's own documents are read. Only a run that has no entry there costs a call of its own: one that is running, one whose
spec was refused, and one that an older version of Muster has settled; one that is elastic and runs costs two.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any

from pydantic import Field

from muster.client.aws.recorded_runs import RecordedRuns
from muster.client.aws.reported import Execution, ExecutionStatus, ExecutionSummary
from muster.client.runs.run_state import RunState, execution_state
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.names import is_of_earlier_execution, run_name
from muster.contract.run.ended_run import RunLine
from muster.contract.timestamps import Timestamp

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud
    from muster.contract.run.ended_run import EndedRun
    from muster.contract.spec.elastic import SeatLimits

_WILD = frozenset("*?[")
_PARALLEL = 8
_PAGE = 100  # executions of a ListExecutions call
# A run may be settled before its execution ends in one of these: a user stops the execution, or a function fails after
# the result was written. The result is what holds.
_MAY_DIFFER = {ExecutionStatus.ABORTED, ExecutionStatus.FAILED, ExecutionStatus.TIMED_OUT}
# How the workflow ends the execution of a run that was stopped: the execution's status is FAILED.
_STOPPED, _ENDED_BY_MUSTER = "Muster.RunStopped", ("Muster.RunStopped", "Muster.RunFailed")


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


class RunSummary(RunLine):
    """A run as a list shows it. What a run has made and cost is known when it has ended."""

    state: RunState
    ended_at: Timestamp | None = Field(default=None, description="none while it runs")


def list_runs(cloud: Cloud, wanted: RunFilter, limit: int) -> list[RunSummary]:
    """At most `limit` of the runs that are wanted, the newest first."""
    most = max(0, min(limit, sys.maxsize))
    return list(islice(_summaries(cloud, wanted, most), most))


def newest_names(cloud: Cloud, limit: int) -> list[str]:
    """The names of the newest runs: one call for each 100."""
    return [item.name for item in islice(cloud.executions.list(None), limit)]


def _summaries(cloud: Cloud, wanted: RunFilter, limit: int) -> Iterator[RunSummary]:
    running = wanted.state is RunState.RUNNING
    executions = cloud.executions.list(ExecutionStatus.RUNNING if running else None)
    young = takewhile(lambda item: not wanted.is_past(item), executions)
    candidates = (item for item in young if wanted.may_be(item, _known_state(item)))
    with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
        while batch := list(islice(candidates, min(limit, _PAGE))):
            ended = _entries(cloud, batch)
            for summary in pool.map(lambda item, ended=ended: _summary(cloud, item, ended), batch):
                if wanted.is_met(summary.state, summary.reason, [count.failure_class for count in summary.failures]):
                    yield summary


def _known_state(item: ExecutionSummary) -> RunState | None:
    """The state of the run, where the execution alone shows it."""
    return None if item.status in _MAY_DIFFER else execution_state(item.status)


def _entries(cloud: Cloud, batch: list[ExecutionSummary]) -> Mapping[str, EndedRun]:
    """What is written of the runs of the batch that have ended."""
    began = [item.started_at for item in batch if item.ended_at is not None]
    return cloud.part(RecordedRuns).ended_since(min(began)) if began else {}


def _summary(cloud: Cloud, item: ExecutionSummary, ended: Mapping[str, EndedRun]) -> RunSummary:
    entry = ended.get(cloud.stack.execution_arn(item.name))
    state, known = execution_state(item.status), dict[str, Any]()
    if entry is not None and not is_of_earlier_execution(timestamps.parse(entry.started_at), item.started_at):
        state = RunState(entry.verdict) if item.status in _MAY_DIFFER else state
        known = {name: getattr(entry, name) for name in RunLine.model_fields}
    # Of a run that succeeded under an older version, the execution has nothing that is worth a call.
    elif item.status is not ExecutionStatus.SUCCEEDED:
        described = cloud.executions.describe(item.name)
        state = RunState.STOPPED if described.error == _STOPPED else state
        known = _of_execution(described)
        if described.seats is not None and described.ended_at is None:
            known["replicas"] = _wanted(cloud, described.seats, item.name)
    own = {
        "run": item.name,
        "started_at": timestamps.text(item.started_at),
        "ended_at": timestamps.text(item.ended_at) if item.ended_at else None,
    }
    return RunSummary(state=state, **{**known, **own})


def _wanted(cloud: Cloud, limits: SeatLimits, execution: str) -> int:
    """How many replicas of an elastic run are wanted now."""
    from muster.contract.run.seat_states import seat_document  # noqa: PLC0415 - of few runs

    if (stored := seat_document()) is None:
        return limits.start
    run = run_name(execution)
    return stored.view(cloud.objects.read(stored.key(run)), run, limits, {}, False).wanted


def _of_execution(described: Execution) -> dict[str, Any]:
    return {
        "reason": described.cause if described.error in _ENDED_BY_MUSTER else described.end,
        "replicas": described.replicas or None,
        "parent": described.parent,
        "recipe": None if described.recipe is None else described.recipe.name,
    }
