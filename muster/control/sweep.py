"""Sweep: stop orphans and complete the ends of runs, in case an event was lost or a function could not finish.

AWS delivers the events of executions on a best-effort basis, so the event of an execution's end may be lost; and a job
may be created after the last check of its run. The sweep keeps no state: it compares the actual and the expected state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.names import run_name
from muster.contract.run.ended_run import Verdict
from muster.contract.run.orphans import EARLY_ENDS, LOOK_BACK_SECONDS, YOUNG_SECONDS
from muster.control.active_run import ActiveRun
from muster.control.aws.aws_errors import patiently
from muster.control.aws.executions import Execution, Executions
from muster.control.backends import PlacedJob
from muster.control.clear_up import ExecutionEnded, clear_up, fence_ended
from muster.control.control_plane import ControlPlane
from muster.control.orphan_jobs import OrphanJobs, StoppedOrphans
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import each_that_succeeds, in_another_order

R = TypeVar("R")

# Of the time budget, where there are also runs to complete.
_SHARE_FOR_ORPHANS = 0.5
# Of the time budget: a stack with more jobs than can be listed still completes its runs.
_SHARE_FOR_LISTING = 0.4


class SweepRequest(BaseModel):
    """What the schedule sends: nothing. A manual call can include younger jobs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    young_seconds: Annotated[float, Field(ge=0, le=86_400)] = YOUNG_SECONDS


@dataclass(frozen=True)
class Swept:
    """The result of a sweep."""

    settled: tuple[str, ...]
    """Runs whose execution had ended before their end was complete."""
    stopped: tuple[str, ...]
    """Orphans: jobs that Muster created, and whose run has no running execution or is being stopped, or which their
    replica has left in a place that did not answer."""
    foreign: tuple[str, ...]
    """Jobs with names of Muster's form that Muster did not create; they are not touched."""
    errors: tuple[str, ...]
    """Errors; the next sweep tries again."""
    left: tuple[str, ...] = ()
    """Orphans that were not stopped: the time was spent, or the fence of their run could not be raised."""


class _Missed(NamedTuple):
    """A run whose execution has ended and whose own end is not complete."""

    run: ActiveRun
    ended: ExecutionEnded


class _Ended(NamedTuple):
    """The runs whose executions have ended early: those that are not complete, and those that could not be read."""

    missed: tuple[_Missed, ...] = ()
    unknown: frozenset[str] = frozenset()


def sweep(plane: ControlPlane, executions: Executions, request: SweepRequest, budget: TimeBudget) -> Swept:
    """Stop orphans, then complete the ends of runs that were missed. A step that fails keeps no other from its turn."""
    now = clock.utc_now()
    errors: list[str] = []
    jobs = OrphanJobs(plane, executions, errors)
    # Suspects before ended runs: a run that ends in between is no suspect. In the other order its jobs would be stopped
    # without its fence.
    nothing: list[PlacedJob] = []
    listing = TimeBudget.of(budget.remaining * _SHARE_FOR_LISTING)
    suspects = _tried(lambda: jobs.found(now, request.young_seconds, listing), nothing, errors)
    found = _tried(lambda: _ended_runs(plane, executions, now, errors), _Ended(), errors)
    missed = found.missed
    # Orphans cost money while they run, so they come before what may take long. Fences come before orphans: the end of
    # a job that is stopped before its run's fence is raised would be misclassified.
    share = plane.allow(TimeBudget.of(budget.remaining * (_SHARE_FOR_ORPHANS if missed else 1.0)))
    fenced = each_that_succeeds(lambda one: _fenced(one, share), missed, errors, _name)
    unfenced = found.unknown | {_name(one) for one in missed} - set(fenced)
    orphans = _tried(lambda: jobs.stop(suspects, share, unfenced), StoppedOrphans(), errors)
    settled = _complete(plane, missed, budget, errors)
    for service in plane.backends.services.values():
        clear = partial(service.sweep, plane.settings.job_prefix, executions.live_runs, request.young_seconds, errors)
        _tried(clear, None, errors)
    return Swept(settled, orphans.stopped, orphans.foreign, tuple(errors), orphans.left)


def _tried(step: Callable[[], R], otherwise: R, errors: list[str]) -> R:
    try:
        return step()
    except Exception as error:
        errors.append(str(error))
        return otherwise


def _ended_runs(plane: ControlPlane, executions: Executions, now: datetime, errors: list[str]) -> _Ended:
    ended = executions.ended(EARLY_ENDS, now - timedelta(seconds=LOOK_BACK_SECONDS))
    found = each_that_succeeds(lambda one: (one.name, _missed(plane, one)), ended, errors, lambda one: one.name)
    unknown = {execution.name for execution in ended} - {name for name, _ in found}
    return _Ended(tuple(one for _, one in found if one is not None), frozenset(map(run_name, unknown)))


def _missed(plane: ControlPlane, execution: Execution) -> _Missed | None:
    """The run of an ended execution, if it has one whose end is not complete."""
    ended = ExecutionEnded(
        execution_arn=execution.arn,
        name=execution.name,
        status=execution.status,
        started_at=execution.started_at,
    )
    run = plane.runs.find(ended.run)
    if run is None or not ended.is_of(run.plan):
        return None
    if run.documents.is_finished() and not _was_cancelled_while_it_ended(run, ended):
        return None
    return _Missed(run, ended)


def _was_cancelled_while_it_ended(run: ActiveRun, ended: ExecutionEnded) -> bool:
    """Whether the workflow's last task completed the end of a failed run whose execution was then stopped.

    It may have started a continuation; only where the run is fenced as cancelled, that has been stopped.
    """
    if not ended.is_cancelled or run.plan.spec.continuation_policy is None:
        return False
    fence, result = run.documents.fence(), run.documents.result()
    has_failed = result is not None and result.verdict is Verdict.FAILED
    return has_failed and (fence is None or not fence.is_cancellation)


def _fenced(one: _Missed, budget: TimeBudget) -> str:
    """Raise the fence of a run, unless it is settled; its name."""
    patiently(lambda: fence_ended(one.run, one.ended), budget)
    return _name(one)


def _complete(plane: ControlPlane, missed: Sequence[_Missed], budget: TimeBudget, errors: list[str]) -> tuple[str, ...]:
    """Complete the ends of runs, one after another. Returns those for which that succeeded."""
    completed = []
    # In another order each time: a run that ends this function, by its memory for instance, must not keep the runs
    # behind it from their turn for ever.
    for count, one in enumerate(in_another_order(missed)):
        # A run whose jobs stop slowly, or whose calls are throttled, must not use up the time for the others.
        share = TimeBudget.of(budget.remaining / (len(missed) - count))
        try:
            if clear_up(plane, one.run, one.ended, share):
                completed.append(_name(one))
        except Exception as error:
            errors.append(f"{_name(one)}: {error}")
    return tuple(completed)


def _name(missed: _Missed) -> str:
    return missed.run.plan.run
