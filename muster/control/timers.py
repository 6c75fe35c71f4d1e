"""A timer fires for the launch gate or the deadline of a run: check once, and stop the run if it missed the limit."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.aws.job_status import JobStatus
from muster.contract.names import RUN_MAX
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.record import Next
from muster.contract.run.verdict import Verdict
from muster.contract.spec.run_limits import Timer
from muster.control.active_run import ActiveReplica, ActiveRun
from muster.control.runtime import clock
from muster.control.runtime.parallel import in_parallel
from muster.control.runtime.time_budget import TimeBudget
from muster.control.stop import raise_fence_and_stop

# Secondary statuses of a job whose program runs or has run; before them the job may still wait for an instance.
_TRAINING = {"Training", "Uploading", "Completed"}


class TimerRequest(BaseModel):
    """What the scheduler sends."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]
    timer: Timer


class Fired(StrEnum):
    """The result of a timer."""

    OVER = "the run has ended or is being stopped"
    PASSED = "enough replicas are training"
    STOPPED = "the run is stopped"


def fire(run: ActiveRun | None, timer: Timer, budget: TimeBudget) -> Fired:
    """Stop the run if it missed the limit of `timer`. A retry completes a call that failed after it raised the fence.

    Raises:
        OutOfTimeError: some jobs were not asked to stop because the budget was spent; the fence stays.
        Exception: the first error of a replica, after all of them have been asked to stop; the fence stays.
    """
    if run is None or run.documents.result() is not None:
        return Fired.OVER
    cause = FenceCause(timer.value)
    fence = run.documents.fence()
    if fence is None:
        reason = _missed_gate(run) if timer is Timer.LAUNCH_GATE else _missed_deadline(run)
        if reason is None:
            return Fired.PASSED
        fence = Fence(verdict=Verdict.FAILED, cause=cause, reason=reason, at=clock.now())
    elif fence.cause is not cause:
        return Fired.OVER
    raise_fence_and_stop(run, fence, budget)
    return Fired.STOPPED


def _missed_deadline(run: ActiveRun) -> str:
    return f"deadline: the run had not ended {run.plan.spec.deadline_seconds:,} s after its launch"


def _missed_gate(run: ActiveRun) -> str | None:
    """Why the run missed its launch gate; None where enough replicas are training."""
    gate = run.plan.spec.launch_gate
    if gate is None:
        return None
    training = sum(in_parallel(_is_training, run.replicas))
    if training >= gate.replicas:
        return None
    within = f"{gate.within_seconds:,} s"
    return f"launch gate: only {training} of the required {gate.replicas} replicas were training after {within}"


def _is_training(replica: ActiveReplica) -> bool:
    """By the record. Otherwise by the job itself, because an event may have been lost."""
    record = replica.record().record
    if record is None:
        return False
    if record.decision is not None:
        return record.decision.next is Next.DONE
    if record.current.secondary in _TRAINING:
        return True
    job = replica.jobs.find(record.current.job)
    return job is not None and job.status in {JobStatus.IN_PROGRESS, JobStatus.COMPLETED} and job.secondary in _TRAINING
