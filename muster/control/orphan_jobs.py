"""Stopping orphans: the training jobs that still run although their run has ended, or is being stopped."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from muster.contract.run.orphans import ActiveJob, is_own, suspects
from muster.control.aws.executions import Executions
from muster.control.control_plane import ControlPlane
from muster.control.documents import RunDocuments
from muster.control.runtime.parallel import each_that_succeeds
from muster.control.runtime.time_budget import TimeBudget


@dataclass(frozen=True)
class StoppedOrphans:
    """Names of jobs: those that were asked to stop, those of others, and those that are left to the next call."""

    stopped: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class _Fate(Enum):
    STOPPED = auto()
    FOREIGN = auto()
    LEFT = auto()


class OrphanJobs:
    """The running jobs of a stack without a run that may have them. Errors about single jobs go to `errors`."""

    def __init__(self, plane: ControlPlane, executions: Executions, errors: list[str]) -> None:
        self._plane = plane
        self._executions = executions
        self._errors = errors

    def found(self, now: datetime, young_seconds: float) -> list[ActiveJob]:
        """The suspects that are at least `young_seconds` old."""
        # Jobs before executions: a run that starts in between has no job in the list.
        active = self._plane.jobs.active(self._plane.settings.job_prefix)
        live = self._executions.live_runs()
        return suspects(active, live - self._stopping({job.name.run for job in active} & live), now, young_seconds)

    def stop(self, found: Iterable[ActiveJob], budget: TimeBudget, unfenced: Collection[str]) -> StoppedOrphans:
        """Ask those of the suspects to stop that are orphans, or those for which the budget suffices.

        Jobs of the runs in `unfenced` are left: the end of such a job would be taken for a user's stop.
        """

        def handle(job: ActiveJob) -> tuple[str, _Fate]:
            return _name(job), _Fate.LEFT if job.name.run in unfenced else self._handle(job, budget)

        handled = each_that_succeeds(handle, found, self._errors, _name)
        names = {fate: tuple(name for name, its in handled if its is fate) for fate in _Fate}
        return StoppedOrphans(stopped=names[_Fate.STOPPED], foreign=names[_Fate.FOREIGN], left=names[_Fate.LEFT])

    def _handle(self, job: ActiveJob, budget: TimeBudget) -> _Fate:
        if budget.is_spent:
            return _Fate.LEFT
        if not self._is_own(job):
            return _Fate.FOREIGN
        self._plane.jobs.stop(_name(job))
        return _Fate.STOPPED

    def _stopping(self, live: set[str]) -> set[str]:
        """Those of the running runs whose fence stands: the function that raised it may not have finished its work."""

        def stopping(name: str) -> tuple[str, bool]:
            return name, RunDocuments(self._plane.store, name).fence() is not None

        return {name for name, fenced in each_that_succeeds(stopping, sorted(live), self._errors, str) if fenced}

    def _is_own(self, job: ActiveJob) -> bool:
        """By the run's records, otherwise by the job's tags: all of an account share the rate of ListTags."""
        run = self._plane.runs.find(job.name.run)
        recorded = run is not None and run.has_recorded(job.name)
        return recorded or is_own(job.name, self._plane.jobs.tags(job.arn))


def _name(job: ActiveJob) -> str:
    return str(job.name)
