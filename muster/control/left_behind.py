"""Attempts that end without a job, or whose job may still run in a place that does not answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.job_status import JobStatus
from muster.contract.run.attempt import NOT_CREATED, Attempt
from muster.contract.run.record import Record
from muster.control.active_run import ActiveReplica
from muster.control.cost_ceiling import note_end, note_launch
from muster.control.jobs import Job, PlaceSilentError
from muster.control.runtime import clock


def call_back(replica: ActiveReplica, record: Record | None) -> None:
    """Stop the jobs of earlier attempts that may still run. Those whose place is still silent are left to a later call.

    Every attempt of the replica is armed again now and then, so none is left for long once its place answers. Those of
    a replica that is lost are left to the sweep.
    """
    for left in attempts_left(record):
        try:
            job = _stopped(replica, left)
        except PlaceSilentError:
            continue
        if job is None:
            # Its launch was noted all the same.
            note_end(replica, _without_doubt(left))
        elif job.end is not None:
            # The event of its end may be lost: EventBridge tries for a day to send one.
            note_end(replica, job.applied_to(left, stopping=False))
        replica.update(lambda record, left=left: _with(record, left, may_run=False))  # type: ignore[misc]


def attempts_left(record: Record | None) -> Sequence[Attempt]:
    """The attempts that are over and whose jobs may still run in places that did not answer."""
    if record is None:
        return ()
    over = record.attempts if record.decision is not None else record.attempts[:-1]
    return [attempt for attempt in over if attempt.where is not None and attempt.where.may_run]


def given_up(
    replica: ActiveReplica,
    current: Attempt,
    silent: PlaceSilentError,
    *,
    unwanted: str | None = None,
    is_first: bool = False,
) -> Attempt | None:
    """The attempt as it ends where its place does not answer; None: its replica waits for the place.

    `unwanted`: why its job is to stop. `is_first`: no call before this one has asked for its job.
    """
    why = unwanted or replica.run.backends.placement.gives_up(replica, current)
    if why is None or current.where is None:
        return None
    failure_class = FailureClass.STOPPED_BY_MUSTER if unwanted else FailureClass.CAPACITY
    if current.has_proven_job and not unwanted:
        failure_class = FailureClass.INFRASTRUCTURE
    ended = not_created(current, failure_class, f"{silent}; {why}")
    proven = {"secondary": current.secondary, "billable_seconds": None} if current.has_proven_job else {}
    may_run = silent.sent or not is_first
    where = current.where.after_silence(clock.now()).model_copy(update={"may_run": may_run})
    left = ended.model_copy(update={**proven, "where": where})
    if may_run:
        # A job of which nothing is known yet costs as much as others.
        note_launch(replica, left)
    return left


def not_created(current: Attempt, failure_class: FailureClass, reason: str) -> Attempt:
    """The attempt as it ends without a job."""
    status = JobStatus.STOPPED if failure_class is FailureClass.STOPPED_BY_MUSTER else JobStatus.FAILED
    return current.model_copy(
        update={
            "ended_at": clock.now(),
            "status": status.value,
            "secondary": NOT_CREATED,
            "failure_class": failure_class,
            "reason": reason,
            "billable_seconds": 0,
        }
    )


def completed_after_all(replica: ActiveReplica, attempts: Sequence[Attempt]) -> Attempt:
    """The last of `attempts`, as the end of a job that was left behind and has completed, if none was created since."""
    current = attempts[-1]
    for left in reversed(attempts) if current.failure_class is not None else ():
        if left.where is not None and left.where.silent_since is not None:
            job = _answered(replica, left)
            if job is not None and job.status == JobStatus.COMPLETED:
                return _carried(current, left, job)
        elif left.was_created:
            break
    return current


def _answered(replica: ActiveReplica, left: Attempt) -> Job | None:
    """The job of `left`; None where its place is silent or denies access: neither keeps a run from its result."""
    with suppress(PlaceSilentError):
        return replica.own_job(left)
    return None


def _carried(current: Attempt, left: Attempt, job: Job) -> Attempt:
    """`current`, carried by the job of `left`, which has completed and is billed once."""
    ended = job.applied_to(left, stopping=False)
    if current is left:
        return ended
    details = job.details.model_copy(update={"training_seconds": None})
    own = {"attempt": current.attempt, "launched_at": current.launched_at, "ended_at": current.ended_at}
    billed = {"billable_seconds": 0, "details": details, "reason": f"attempt {left.attempt} has completed after all"}
    return ended.model_copy(update={**own, **billed})


def note_silence(replica: ActiveReplica, current: Attempt, at: str) -> None:
    """Record that the place of `current` did not answer, so that its job was not stopped."""
    replica.update(lambda record: _with(record, current, silent_since=at, may_run=True))


def _without_doubt(left: Attempt) -> Attempt:
    """`left`, of which it is known that no job runs."""
    where = left.where and left.where.model_copy(update={"may_run": False})
    return left.model_copy(update={"where": where})


def _stopped(replica: ActiveReplica, left: Attempt) -> Job | None:
    """The job of `left`, if there is one; it is asked to stop unless it has ended."""
    jobs = replica.jobs_of(left)
    found = jobs.find(left.job)
    if found is None or not replica.owns_job(found, left):
        return None
    if found.end is None:
        jobs.stop(left.job)
    return found


def _with(record: Record | None, changed: Attempt, **fields: object) -> Record | None:
    """The record with these fields in where the attempt of this number runs."""
    if record is None:
        return None
    attempts = tuple(
        one.model_copy(update={"where": one.where.model_copy(update=fields)})
        if one.attempt == changed.attempt and one.where is not None
        else one
        for one in record.attempts
    )
    return record.model_copy(update={"attempts": attempts})
