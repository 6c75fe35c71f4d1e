"""A timer fires: it is time for the run's launch gate or its deadline. Look once, and stop the run if it missed it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.aws.job_status import JobStatus
from muster.contract.names import RUN_MAX
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.record import Next
from muster.contract.run.result import Verdict
from muster.contract.spec.run_limits import Timer
from muster.control.active_run import ActiveRun
from muster.control.runtime import clock
from muster.control.runtime.parallel import in_parallel
from muster.control.stop import raise_fence_and_stop

# Secondary statuses of a job whose program runs or has run; before them an instance may still be waited for.
_AT_WORK = {"Training", "Uploading", "Completed"}


class TimerRequest(BaseModel):
    """What the scheduler sends."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]
    timer: Timer


class Fired(StrEnum):
    """What came of a timer."""

    OVER = "the run is over or is being stopped"
    PASSED = "enough replicas are at work"
    STOPPED = "the run is stopped"


def fire(run: ActiveRun | None, timer: Timer) -> Fired:
    """Stop the run if it has missed what `timer` stands for. A retry completes a call that failed after its fence.

    Raises:
        Exception: a replica could not be asked to stop, after all have been; the fence stands.
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
    raise_fence_and_stop(run, fence)
    return Fired.STOPPED


def _missed_deadline(run: ActiveRun) -> str:
    return f"deadline: the run had not ended {run.plan.spec.deadline_seconds:,} s after its launch"


def _missed_gate(run: ActiveRun) -> str | None:
    """Why the run missed its launch gate; None when enough replicas are at work."""
    gate = run.plan.spec.launch_gate
    if gate is None:
        return None
    at_work = sum(in_parallel(lambda rank: _is_at_work(run, rank), range(run.plan.spec.replicas)))
    if at_work >= gate.replicas:
        return None
    within = f"{gate.within_seconds:,} s"
    return f"launch gate: {at_work} of the {gate.replicas} required replicas were at work after {within}"


def _is_at_work(run: ActiveRun, rank: int) -> bool:
    """By the record; the job itself is asked only where that says no, because an event may have been lost."""
    record = run.documents.record(rank).record
    if record is None:
        return False
    if record.decision is not None:
        return record.decision.next is Next.DONE
    if record.current.secondary in _AT_WORK:
        return True
    job = run.jobs.find(record.current.job)
    return job is not None and job.status in {JobStatus.IN_PROGRESS, JobStatus.COMPLETED} and job.secondary in _AT_WORK
