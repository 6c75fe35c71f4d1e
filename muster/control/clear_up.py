"""Clearing up after an execution that ended before it settled its run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract import timestamps
from muster.contract.names import is_of_earlier_execution, run_name
from muster.contract.run.ended_run import Verdict
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.plan import Plan
from muster.control.active_run import ActiveRun
from muster.control.control_plane import ControlPlane
from muster.control.run_result import is_overdue
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import OutOfTimeError
from muster.control.settle import UnfinishedError, finish_run
from muster.control.stop import stop_jobs, verify_stopped

_CAUSE_MAX = 300  # Step Functions: 32,768 characters; the reason is shown in a line
_SHARE_FOR_STOPPING = 0.8  # of the time budget, however long SageMaker throttles; the rest is for settling


class ExecutionEnded(BaseModel):
    """The fields of `Step Functions Execution Status Change` that Muster reads."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    execution_arn: Annotated[str, Field(min_length=1, max_length=2_048, alias="executionArn")]
    name: Annotated[str, Field(min_length=1, max_length=80)]
    status: str
    started_at: Annotated[datetime, Field(alias="startDate")]
    cause: str | None = None
    """What StopExecution was given: who stopped it, and how."""

    @property
    def run(self) -> str:
        """The run of this execution."""
        return run_name(self.name)

    def is_of(self, plan: Plan) -> bool:
        """Whether the execution is the one that was planned, and not another one of the same name or even ARN."""
        same_arn = plan.execution_arn == self.execution_arn
        return same_arn and not is_of_earlier_execution(timestamps.parse(plan.created_at), self.started_at)

    @property
    def is_cancelled(self) -> bool:
        """Whether a user has stopped the execution."""
        return self.status == "ABORTED"

    @property
    def fence(self) -> Fence:
        """The fence for this end, unless the run was stopping before."""
        if self.is_cancelled:
            verdict, cause, reason = Verdict.STOPPED, FenceCause.EXECUTION_STOPPED, "the execution was stopped"
            reason += f": {self.cause[:_CAUSE_MAX].rstrip('.')}" if self.cause else ""
        else:
            verdict, cause = Verdict.FAILED, FenceCause.EXECUTION_FAILED
            reason = f"the execution ended as {self.status}"
        return Fence(verdict=verdict, cause=cause, reason=reason, at=clock.now())


def fence_ended(run: ActiveRun, ended: ExecutionEnded) -> bool:
    """Raise the fence of a run whose execution has ended. True: the run is settled, so its jobs were stopped before."""
    result = run.documents.result()
    if ended.is_cancelled and (result is None or result.verdict is Verdict.FAILED):
        run.documents.cancel(ended.fence)
    elif result is None:
        run.documents.raise_fence(ended.fence)
    return result is not None


def clear_up(plane: ControlPlane, run: ActiveRun | None, ended: ExecutionEnded, budget: TimeBudget) -> bool:
    """Stop the jobs of an ended execution, verify that they have ended, and finish its run. False: it had no run.

    Raises:
        StillRunningError: jobs are still active at the end of the budget; the run is settled nevertheless.
        OutOfTimeError: the budget was too short to ask all jobs to stop, or to settle the run; a later call does.
        UnfinishedError: the run is settled, and a step after that failed.
        Exception: a replica could not be asked to stop, although all jobs may have ended by now.
    """
    # An execution that was refused because its name was taken must not stop the run that owns the name.
    if run is None or not ended.is_of(run.plan):
        return False
    stopping = plane.allow(TimeBudget.of(budget.remaining * _SHARE_FOR_STOPPING))
    failure: Exception | None = None
    # Before all else: a run that is settled without its fence gets another verdict, and perhaps a continuation.
    if not fence_ended(run, ended):
        try:
            stop_jobs(run, stopping)
        except OutOfTimeError as error:
            # To settle now would take time from the jobs that still train: the next call asks them to stop.
            if not is_overdue(run.documents.fence()):
                raise
            failure = error
        except Exception as error:
            # The check below lists the jobs, so it works even where a record cannot be read.
            failure = error
    try:
        verify_stopped(run, stopping)
    except Exception as error:
        failure = error
    if failure is None and not ended.is_cancelled and run.documents.is_finished():
        # The workflow itself has completed the end of its run: the execution of each run that fails comes here.
        return True
    finished = finish_run(plane, run, budget, verified=failure is None, cancelled=ended.is_cancelled)
    if failure is not None:
        raise failure
    if finished.left:
        raise UnfinishedError("; ".join(finished.left))
    return True
