"""Sweep: settle unsettled runs and stop orphans, in case an event was lost.

AWS delivers the events of executions on a best-effort basis, so the event of an execution's end may be lost; and a job
may be created after the last check of its run. The sweep keeps no state: it compares the actual and the expected state.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.errors import DocumentError
from muster.contract.run.orphans import EARLY_ENDS, LOOK_BACK_SECONDS, YOUNG_SECONDS, ActiveJob, is_own, suspects
from muster.control.active_run import ActiveRun
from muster.control.aws.executions import Execution, Executions
from muster.control.aws.jobs import Jobs
from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.control_plane import ControlPlane
from muster.control.runtime import clock
from muster.control.runtime.parallel import in_parallel
from muster.control.runtime.time_budget import TimeBudget


class SweepRequest(BaseModel):
    """What the schedule sends: nothing. A manual call can include younger jobs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    young_seconds: Annotated[float, Field(ge=0, le=86_400)] = YOUNG_SECONDS


@dataclass(frozen=True)
class Swept:
    """The result of a sweep."""

    settled: tuple[str, ...]
    """Runs whose execution had ended without a result."""
    stopped: tuple[str, ...]
    """Orphans: jobs that Muster created and whose run has no running execution."""
    foreign: tuple[str, ...]
    """Jobs with names of Muster's form that Muster did not create; they are not touched."""
    errors: tuple[str, ...]
    """Errors; the next sweep tries again."""


def sweep(plane: ControlPlane, executions: Executions, request: SweepRequest, budget: TimeBudget) -> Swept:
    """Settle runs whose end was missed, and stop orphans."""
    now, prefix = clock.utc_now(), plane.settings.job_prefix
    errors: list[str] = []
    # Runs before jobs: the end of a job that is stopped before its run's fence is raised would be misclassified.
    ended = executions.ended(EARLY_ENDS, now - timedelta(seconds=LOOK_BACK_SECONDS))
    settled = _settle(plane, ended, budget, errors)
    # Jobs before executions: a run that starts in between has no job in the list.
    active = plane.jobs.active(prefix)
    orphans = suspects(active, executions.live_runs(), now, request.young_seconds)
    owned = in_parallel(lambda job: is_own(job.name, plane.jobs.tags(job.arn)), orphans)
    own = [job for job, ours in zip(orphans, owned, strict=True) if ours]
    foreign = [job for job, ours in zip(orphans, owned, strict=True) if not ours]
    stopped = _stop(plane.jobs, own, errors)
    return Swept(settled, stopped, tuple(str(job.name) for job in foreign), tuple(errors))


def _stop(jobs: Jobs, own: list[ActiveJob], errors: list[str]) -> tuple[str, ...]:
    def stop(job: ActiveJob) -> str | None:
        try:
            jobs.stop(str(job.name))
        except Exception as error:  # one job must not keep the others from being stopped
            errors.append(f"{job.name}: {error}")
            return None
        return str(job.name)

    return tuple(name for name in in_parallel(stop, own) if name is not None)


def _settle(plane: ControlPlane, ended: list[Execution], budget: TimeBudget, errors: list[str]) -> tuple[str, ...]:
    settled = []
    missed = [(execution, run) for execution in ended if (run := _unsettled(plane, execution, errors))]
    for left, (execution, run) in zip(range(len(missed), 0, -1), missed, strict=True):
        try:
            # A run whose jobs stop slowly, or whose calls are throttled, must not use up the time for the others.
            if clear_up(plane, run, _end_of(execution), TimeBudget.of(budget.remaining / left)):
                settled.append(run.plan.run)
        except Exception as error:
            errors.append(f"{run.plan.run}: {error}")
    plane.allow(budget)
    return tuple(settled)


def _unsettled(plane: ControlPlane, execution: Execution, errors: list[str]) -> ActiveRun | None:
    """The run of an ended execution, if it has one that is not settled."""
    try:
        end = _end_of(execution)
        run = plane.runs.find(end.run)
        if run is None or not end.is_of(run.plan) or run.documents.result() is not None:
            return None
    except DocumentError as error:
        errors.append(str(error))
        return None
    return run


def _end_of(execution: Execution) -> ExecutionEnded:
    return ExecutionEnded(
        execution_arn=execution.arn,
        name=execution.name,
        status=execution.status,
        started_at=execution.started_at,
    )
