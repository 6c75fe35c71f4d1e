"""Jobs of attempts that are over for Muster, and that may still run in a place that did not answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from muster.contract.aws.job_status import JobStatus
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Record
from muster.control.active_run import ActiveReplica
from muster.control.aws.aws_errors import tolerated
from muster.control.jobs import Job, PlaceSilentError


def call_back(replica: ActiveReplica, record: Record | None) -> None:
    """Stop the jobs of earlier attempts that may still run. Those whose place is still silent are left to a later call.

    Every attempt of the replica is armed again now and then, so none is left for long once its place answers.
    """
    for left in () if record is None else record.attempts[:-1]:
        if left.where is not None and left.where.may_run:
            try:
                _stop(replica, left)
            except PlaceSilentError:
                continue
            replica.update(lambda record, left=left: _with(record, left, may_run=False))  # type: ignore[misc]


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
    with suppress(PlaceSilentError), tolerated("AccessDenied", "AccessDeniedException"):
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


def _stop(replica: ActiveReplica, left: Attempt) -> None:
    jobs = replica.jobs_of(left)
    found = jobs.find(left.job)
    if found is not None and found.end is None and replica.owns_job(found, left):
        jobs.stop(left.job)


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
