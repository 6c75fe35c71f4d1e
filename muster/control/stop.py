"""Stop: raise the fence of a run, stop every job, and verify that none is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator

from muster.contract.aws.job_status import JobStatus
from muster.contract.backend import Backend
from muster.contract.errors import DocumentError
from muster.contract.run.attempt import Attempt
from muster.contract.run.ended_run import Verdict
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.record import Record
from muster.contract.run.run_events import QuorumLost
from muster.control.active_run import ActiveReplica, ActiveRun
from muster.control.backends import PlacedJob, other_backends
from muster.control.control_plane import ControlPlane
from muster.control.jobs import PlaceSilentError
from muster.control.left_behind import note_silence
from muster.control.rerun_decision import REASON_MAX
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import RunRequest, count
from muster.control.runtime.parallel import in_another_order, in_parallel
from muster.control.seat_keeper import seat_keeper
from muster.control.service_events import service_events

# Between two checks of the records. StopTrainingJob: SIGTERM, then 120 seconds until SIGKILL; after that the artifacts
# are uploaded.
CHECK_SECONDS = 5.0
# Between two listings while the records show jobs that have not ended. ListTrainingJobs: an account has about two calls
# a second, and a listing takes one for each 100 jobs of the run, ended or not.
LISTING_SECONDS = 60.0
# ListTrainingJobs is eventually consistent: one empty list may miss a job that was just created.
_EMPTY_CHECKS = 2


# The workflow passes the cause of an error, which has up to 32,768 characters.
Reason = Annotated[str, BeforeValidator(lambda value: str(value)[:REASON_MAX])]


class StopRequest(RunRequest):
    """What the workflow sends when a run has lost its quorum."""

    reason: Reason


def stop_run(plane: ControlPlane, request: StopRequest, budget: TimeBudget) -> bool:
    """Stop a run that has lost its quorum. False: another call raised the fence, and stops the jobs.

    Each lost replica causes a call. The one that raises the fence announces it and stops the jobs; so do its retries,
    whose reason is the fence's, because it names the replica. So the jobs are stopped once, however many are lost.

    Raises:
        OutOfTimeError: some jobs were not asked to stop because the budget was spent.
        Exception: the first error of a replica, after all of them have been asked to stop.
    """
    run = plane.runs.require(request.run)
    fence = Fence(verdict=Verdict.FAILED, cause=FenceCause.QUORUM_LOST, reason=request.reason, at=clock.now())
    standing = run.documents.raise_fence(fence)
    if (standing.cause, standing.reason) != (fence.cause, fence.reason):
        return False
    # Equal, not identical: where the answer to the write was lost, the fence was read.
    if standing == fence:
        count("QuorumLost")
        plane.bus.emit(QuorumLost(at=fence.at, run=request.run, reason=fence.reason))
    _stop(plane, run, budget)
    others = other_backends(run.plan.spec)
    # Nearly all runs have training jobs alone: then no option is looked for.
    for service in service_events() if others else ():
        if service.backend in others:
            service.conclude(plane, run, budget)
    return True


class StillRunningError(Exception):
    """Jobs of the run were still active when the time budget was spent; the function will be called again."""


def raise_fence_and_stop(plane: ControlPlane, run: ActiveRun, fence: Fence, budget: TimeBudget) -> None:
    """Raise the fence, so that no job starts any more, and ask every job of the run to stop.

    Raises:
        OutOfTimeError: some were not asked because the budget was spent.
        Exception: the first error of a replica, after all of them have been asked.
    """
    run.documents.raise_fence(fence)
    _stop(plane, run, budget)


def _stop(plane: ControlPlane, run: ActiveRun, budget: TimeBudget) -> None:
    """Stop the jobs of a fenced run whose workflow goes on, and end its seats that wait."""
    if (seats := seat_keeper(run.plan.spec)) is not None:
        seats.release(plane, run, "the run is stopping")
    stop_jobs(run, budget)


def stop_jobs(run: ActiveRun, budget: TimeBudget) -> None:
    """Ask every job of a run whose fence is raised to stop, or those for which the budget suffices.

    Raises:
        OutOfTimeError: some were not asked because the budget was spent.
        Exception: the first error of a replica, after all of them have been asked.
    """
    # A second call would otherwise read the records of all that the first has stopped, while it stops none.
    in_parallel(_stop_replica, in_another_order(run.replicas), budget)


def _stop_replica(replica: ActiveReplica) -> None:
    stop_attempt(replica, replica.record().record)


def stop_attempt(replica: ActiveReplica, record: Record | None) -> None:
    """Ask the job of the current attempt of `record`, the replica's, to stop, if there is one that has not ended."""
    if record is None or record.decision is not None:
        return
    current = record.current
    # SageMaker has reported that the job is stopping. To ask again would use up the rate that the other jobs need.
    if current.status == JobStatus.STOPPING:
        return
    try:
        _stop_current(replica, current)
    except PlaceSilentError:
        # The record says so until its job is known to have ended; this call is repeated, as after any error.
        note_silence(replica, current, clock.now())
        raise


def _stop_current(replica: ActiveReplica, current: Attempt) -> None:
    jobs = replica.jobs_of(current)
    if replica.spec.backend is Backend.TRAINING_JOB and current.has_proven_job:
        jobs.stop(current.job)
        return
    # On a cluster a name can be given again.
    job = replica.own_job(current)
    if job is not None and not job.is_gone:
        jobs.stop(current.job)


def stop_remaining(run: ActiveRun, budget: TimeBudget) -> None:
    """Stop the jobs that are left of a run whose replicas have ended: jobs that were created late.

    Raises:
        OutOfTimeError: some were not asked because the budget was spent.
        Exception: the first error, after all of them have been asked.
    """
    silent: list[PlaceSilentError] = []
    in_parallel(_stop_job, _running(run.own_jobs(silent)), budget)
    if silent:
        raise silent[0]


def _running(jobs: Sequence[PlacedJob]) -> list[PlacedJob]:
    """Those that were not asked to stop."""
    return [one for one in jobs if not one.job.is_stopping]


def _stop_job(one: PlacedJob) -> None:
    one.jobs.stop(str(one.job.name))


def verify_stopped(run: ActiveRun, budget: TimeBudget) -> None:
    """Wait until no job of the run is active, and stop jobs that were missed.

    Raises:
        StillRunningError: some are still active when the time budget is spent.
    """
    empty = 0
    while True:
        silent: list[PlaceSilentError] = []
        left = run.own_jobs(silent)
        empty = 0 if left else empty + 1
        if empty == _EMPTY_CHECKS:
            if silent:
                message = f"{silent[0]}: jobs of {run.plan.run} may still run there"
                raise StillRunningError(message)
            return
        if budget.is_spent:
            message = f"{len(left)} jobs of {run.plan.run} are still active"
            raise StillRunningError(message)
        in_parallel(_stop_job, _running(left), budget)
        _pause(run, TimeBudget.of(min(LISTING_SECONDS, budget.remaining)) if left else TimeBudget.of(0))


def _pause(run: ActiveRun, budget: TimeBudget) -> None:
    """Pause once, and then for as long as a record shows a job that has not ended and the budget lasts."""
    clock.sleep(CHECK_SECONDS)
    waiting = run.replicas
    while not budget.is_spent:
        ended = in_parallel(_has_ended, waiting)
        waiting = [replica for replica, has_ended in zip(waiting, ended, strict=True) if not has_ended]
        if not waiting:
            return
        clock.sleep(CHECK_SECONDS)


def _has_ended(replica: ActiveReplica) -> bool:
    """Whether the record shows no job that has not ended. Only a listing finds the job of a record without a status."""
    try:
        record = replica.record().record
    except DocumentError:
        return True
    return record is None or record.decision is not None or not record.current.has_proven_job
