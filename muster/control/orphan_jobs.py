"""Stopping orphans: jobs that run although their run has ended or is being stopped, or their replica has left them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from muster.contract.run.orphans import is_own, suspects
from muster.control.aws.executions import Executions
from muster.control.backends import PlacedJob
from muster.control.control_plane import ControlPlane
from muster.control.documents import RunDocuments
from muster.control.jobs import Jobs
from muster.control.left_behind import attempts_left
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import OutOfTimeError, each_that_succeeds

_Fate = Literal["stopped", "foreign", "left"]


@dataclass(frozen=True)
class StoppedOrphans:
    """Names of jobs: those that were asked to stop, those of others, and those that are left to the next call."""

    stopped: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class OrphanJobs:
    """The running jobs of a stack without a run that may have them. Errors about single jobs go to `errors`."""

    def __init__(self, plane: ControlPlane, executions: Executions, errors: list[str]) -> None:
        self._plane = plane
        self._executions = executions
        self._errors = errors

    def found(self, now: datetime, young_seconds: float, budget: TimeBudget) -> list[PlacedJob]:
        """The suspects that are at least `young_seconds` old: the newest, where the budget is too small for all."""
        # Jobs before executions: a run that starts in between has no job in the list.
        prefix = self._plane.settings.job_prefix

        def listed(jobs: Jobs) -> list[PlacedJob]:
            placed: list[PlacedJob] = []
            try:
                placed += (PlacedJob(jobs, job) for job in jobs.active(prefix, budget) if not job.is_stopping)
            except OutOfTimeError as error:
                self._errors.append(f"{jobs.place}: {error}")
            return placed

        # A cluster that does not answer keeps no other service from being swept.
        services = self._plane.backends.every()
        found = each_that_succeeds(listed, services, self._errors, lambda jobs: jobs.place)
        active = [one for placed in found for one in placed]
        live = self._executions.live_runs()
        quiet = live - self._stopping({one.job.name.run for one in active} & live)
        suspected = {id(job) for job in suspects([one.job for one in active], quiet, now, young_seconds)}
        suspected |= self._left_behind([one for one in active if one.job.name.run in quiet])
        return [one for one in active if id(one.job) in suspected]

    def stop(self, found: Iterable[PlacedJob], budget: TimeBudget, unfenced: Collection[str]) -> StoppedOrphans:
        """Ask those of the suspects to stop that are orphans, or those for which the budget suffices.

        Jobs of the runs in `unfenced` are left: the end of such a job would be taken for a user's stop.
        """

        def handle(one: PlacedJob) -> tuple[str, _Fate]:
            return _name(one), "left" if one.job.name.run in unfenced else self._handle(one, budget)

        handled = each_that_succeeds(handle, found, self._errors, _name)
        return StoppedOrphans(**{fate: tuple(name for name, its in handled if its == fate) for fate in get_args(_Fate)})

    def _handle(self, one: PlacedJob, budget: TimeBudget) -> _Fate:
        if budget.is_spent:
            return "left"
        if not self._is_own(one):
            return "foreign"
        one.jobs.stop(_name(one))
        return "stopped"

    def _left_behind(self, active: list[PlacedJob]) -> set[int]:
        """Those in places that their replicas have left: of one that is lost, no later attempt looks for them."""
        if not self._plane.settings.places:
            return set()
        away = [one for one in active if one.jobs is not self._plane.backends.training]
        looked_at = each_that_succeeds(lambda one: (one, self._was_left(one)), away, self._errors, _name)
        return {id(one.job) for one, was_left in looked_at if was_left}

    def _was_left(self, one: PlacedJob) -> bool:
        name = one.job.name
        run = self._plane.runs.find(name.run)
        record = None if run is None or run.plan.spec.places is None else run.documents.record(name.rank).record
        return any(left.attempt == name.attempt for left in attempts_left(record))

    def _stopping(self, live: set[str]) -> set[str]:
        """Those of the running runs whose fence stands: the function that raised it may not have finished its work."""

        def stopping(name: str) -> tuple[str, bool]:
            return name, RunDocuments(self._plane.store, name).fence() is not None

        return {name for name, fenced in each_that_succeeds(stopping, sorted(live), self._errors, str) if fenced}

    def _is_own(self, one: PlacedJob) -> bool:
        """By the run's records, otherwise by the job's tags: all of an account share the rate of ListTags."""
        job, run = one.job, self._plane.runs.find(one.job.name.run)
        recorded = run is not None and run.has_recorded(job.name, one.jobs)
        return recorded or is_own(job.name, one.jobs.tags(job.arn))


def _name(one: PlacedJob) -> str:
    return str(one.job.name)
