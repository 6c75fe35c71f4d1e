"""Looks at a job on a cluster: what each finds is noted in the record, and an end is decided.

Nothing reports such a job's state. So a function looks when a notice, an event or the re-arm says that it may have
changed. The operator needs a while after a pod has ended, so a look may be repeated for a bounded time.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, cast

from muster.contract import timestamps
from muster.contract.aws.job_status import JobStatus
from muster.contract.errors import DocumentError
from muster.contract.run.attempt import Attempt
from muster.contract.run.notices import NOTICE_BYTES_MAX, EndNotice, Notice, NoticeKind
from muster.contract.run.record import Record, Wait
from muster.control.attempt_end import Outcome, end_attempt
from muster.control.jobs import Job
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import logger
from muster.options.hyperpod.control.job_on_cluster import JobOnCluster, note_look

if TYPE_CHECKING:
    from muster.control.active_run import ActiveReplica
    from muster.control.control_plane import ControlPlane
    from muster.options.hyperpod.control.cluster_jobs import ClusterJobs

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0
# The kubelet may take as long to say that a container has ended.
_ALIVE_SECONDS = 5.0
# What another look needs of the time for which one still waits, to leave the waiting to it.
_ENOUGH_SECONDS = 10.0


@dataclass(frozen=True)
class Look:
    """What the last look at a job has found. `outcome` is set where the attempt has ended."""

    job: Job | None
    outcome: Outcome | None = None
    ended: bool = False


def look_until_ended(
    plane: ControlPlane,
    replica: ActiveReplica,
    attempt: Attempt,
    seconds: float,
    notice: Notice | None = None,
) -> Look:
    """Look at the attempt's job until it has ended, the operator has started its pods again, or `seconds` have passed.

    There is at least one look. The end is decided (`end_attempt`), anything else noted. A `notice` of an end may
    explain a failure. No notice is believed: a look for one waits only while no other one does, and not for long where
    all pods of the job run.
    """
    budget, pause = TimeBudget.of(seconds), _FIRST_PAUSE_SECONDS
    patience, wait = TimeBudget.of(_ALIVE_SECONDS), None
    known = attempt.cluster.restarts if attempt.cluster is not None else 0
    while True:
        job = replica.own_job(attempt)
        if job is None:
            return Look(None)
        if job.end is not None:
            return _conclude(plane, replica, attempt, job, notice)
        restarted = restarts_of(job) > known
        is_over = restarted or budget.is_spent
        if not is_over and notice is not None:
            wait = wait or _begin_wait(replica, attempt, seconds, explains=notice.kind is NoticeKind.END)
            is_over = wait is None or (patience.is_spent and _jobs(replica).is_running(job))
        if is_over:
            note_look(replica.update, job, wait)
            return Look(job)
        clock.sleep(min(pause, budget.remaining))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _begin_wait(replica: ActiveReplica, attempt: Attempt, seconds: float, *, explains: bool) -> Wait | None:
    """Say in the record that a look waits for the attempt's job; None where another one does, and for long enough.

    One that can explain a failure does not leave it to one that cannot.
    """
    now = clock.utc_now()
    until = timestamps.text(now + timedelta(seconds=seconds))
    wait = Wait(attempt=attempt.attempt, until=until, explains=explains)
    enough = timestamps.text(now + timedelta(seconds=min(seconds, _ENOUGH_SECONDS)))

    def change(record: Record | None) -> Record | None:
        if record is None or record.current.attempt != attempt.attempt or record.decision is not None:
            return None
        other = record.wait
        waits = other is not None and other.attempt == attempt.attempt and other.until > enough
        if other is not None and waits and (other.explains or not explains):
            return None
        return record.model_copy(update={"wait": wait})

    return wait if replica.write_record(change).written else None


def _conclude(plane: ControlPlane, replica: ActiveReplica, attempt: Attempt, job: Job, notice: Notice | None) -> Look:
    """Decide what follows the end of the job."""
    if job.status == JobStatus.FAILED and not job.is_gone:
        job = _jobs(replica).explained(job, _words(plane, notice))
    outcome = end_attempt(plane, replica, job.applied_to(attempt, stopping=False))
    return Look(job, outcome, ended=True)


def _words(plane: ControlPlane, notice: Notice | None) -> EndNotice | None:
    """What the replica has written about its end; None where it has not, or that cannot be used."""
    if notice is None or notice.kind is not NoticeKind.END:
        return None
    try:
        body = plane.store.read_bounded(notice.key, NOTICE_BYTES_MAX)
        return None if body is None else EndNotice.from_json(body, plane.store.uri(notice.key))
    except DocumentError as error:
        logger.warning("an end notice is left out", extra={"key": notice.key, "error": str(error)})
        return None


def restarts_of(job: Job) -> int:
    """How often the operator has started the job's pods again."""
    return job.state.restarts if isinstance(job, JobOnCluster) else 0


def _jobs(replica: ActiveReplica) -> ClusterJobs:
    return cast("ClusterJobs", replica.jobs)
