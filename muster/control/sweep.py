"""Sweep: repair what a lost event left behind. Nothing may outlive its run.

AWS delivers the events of executions on a best-effort basis, so the end of an execution may pass unnoticed; and a job
may be born after the last look at its run. The sweep keeps no state: it compares what there is with what should be.
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
    """What the schedule sends: nothing. A sweep by hand may judge younger jobs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    young_seconds: Annotated[float, Field(ge=0, le=86_400)] = YOUNG_SECONDS


@dataclass(frozen=True)
class Swept:
    """What a sweep found and did."""

    settled: tuple[str, ...]
    """Runs whose execution had ended and that had no result."""
    stopped: tuple[str, ...]
    """Jobs of ours whose run has no running execution."""
    foreign: tuple[str, ...]
    """Jobs under names of ours that we did not make; left alone."""
    troubles: tuple[str, ...]
    """What could not be done now; the next sweep tries again."""


def sweep(plane: ControlPlane, executions: Executions, request: SweepRequest, budget: TimeBudget) -> Swept:
    """Settle runs whose end was missed, and stop the jobs of runs that have ended."""
    now, prefix = clock.utc_now(), plane.settings.job_prefix
    troubles: list[str] = []
    # Runs before jobs: a job that is stopped before its run's fence stands would end for a reason of its own.
    ended = executions.ended(EARLY_ENDS, now - timedelta(seconds=LOOK_BACK_SECONDS))
    settled = _settle(plane, ended, budget, troubles)
    # Jobs before executions: a run that begins in between has no job in the list.
    active = plane.jobs.active(prefix)
    orphans = suspects(active, executions.live_runs(), now, request.young_seconds)
    owned = in_parallel(lambda job: is_own(job.name, plane.jobs.tags(job.arn)), orphans)
    own = [job for job, ours in zip(orphans, owned, strict=True) if ours]
    foreign = [job for job, ours in zip(orphans, owned, strict=True) if not ours]
    stopped = _stop(plane.jobs, own, troubles)
    return Swept(settled, stopped, tuple(str(job.name) for job in foreign), tuple(troubles))


def _stop(jobs: Jobs, own: list[ActiveJob], troubles: list[str]) -> tuple[str, ...]:
    def stop(job: ActiveJob) -> str | None:
        try:
            jobs.stop(str(job.name))
        except Exception as error:  # one job must not keep the others from being stopped
            troubles.append(f"{job.name}: {error}")
            return None
        return str(job.name)

    return tuple(name for name in in_parallel(stop, own) if name is not None)


def _settle(plane: ControlPlane, ended: list[Execution], budget: TimeBudget, troubles: list[str]) -> tuple[str, ...]:
    settled = []
    missed = [(execution, run) for execution in ended if (run := _unsettled(plane, execution, troubles))]
    for left, (execution, run) in zip(range(len(missed), 0, -1), missed, strict=True):
        try:
            # A run whose jobs take long to stop must not use up the others' time.
            if clear_up(plane, run, _end_of(execution), TimeBudget.of(budget.remaining / left)):
                settled.append(run.plan.run)
        except Exception as error:
            troubles.append(f"{run.plan.run}: {error}")
    return tuple(settled)


def _unsettled(plane: ControlPlane, execution: Execution, troubles: list[str]) -> ActiveRun | None:
    """The run of an ended execution, where it has one and was not settled."""
    try:
        run = plane.runs.find(_end_of(execution).run)
        if run is None or run.plan.execution_arn != execution.arn or run.documents.result() is not None:
            return None
    except DocumentError as error:
        troubles.append(str(error))
        return None
    return run


def _end_of(execution: Execution) -> ExecutionEnded:
    return ExecutionEnded(execution_arn=execution.arn, name=execution.name, status=execution.status)
