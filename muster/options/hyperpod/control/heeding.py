"""What look and react do about what may be the end of a job on a cluster: a notice of a replica, an event about nodes.

Neither is believed. It only says where to look, and the job itself decides. So a notice that is forged, repeated, late
or malformed causes a look, and one that is lost delays the end until the re-arm. Of the looks at a job that notices
cause one waits at a time: otherwise forged ones would keep the function from the jobs of others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from muster.contract.aws.job_status import JobStatus
from muster.contract.backend import Backend
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt
from muster.contract.run.notices import Notice, NoticeKind
from muster.contract.run.record import Record
from muster.control.active_run import ActiveReplica
from muster.control.attempt_end import end_attempt
from muster.control.control_plane import ControlPlane
from muster.control.cost_ceiling import note_launch
from muster.control.jobs import Job, Jobs
from muster.control.react import Reaction, reaction_to
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import in_parallel
from muster.options.hyperpod.control.cluster_look import Look, look_until_ended, restarts_of
from muster.options.hyperpod.control.job_on_cluster import note_look

if TYPE_CHECKING:
    from muster.options.hyperpod.control.backend import ClusterService
    from muster.options.hyperpod.control.cluster_jobs import ClusterJobs

# How long the operator may take to see what a pod, or the health check of a node, has reported already.
END_SECONDS = 30.0
LOSS_SECONDS = 60.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.2, 5.0
_SECONDS = {NoticeKind.START: 0.0, NoticeKind.END: END_SECONDS, NoticeKind.MISSING: LOSS_SECONDS}


def heed_notices(plane: ControlPlane, notices: Iterable[Notice], budget: TimeBudget) -> list[Reaction]:
    """Look at the jobs that `notices` name.

    Raises:
        Exception: the first error, after all of them were tried; a repetition of the whole is safe.
    """
    return in_parallel(partial(_heed, plane, budget=budget), notices)


def _heed(plane: ControlPlane, notice: Notice, *, budget: TimeBudget) -> Reaction:
    replica = _replica(plane, notice)
    seen = replica.record() if replica else None
    if replica is None or seen is None or seen.record is None:
        return Reaction("dropped: no such replica on a cluster")
    current = seen.record.current
    number = current.attempt if notice.attempt is None else notice.attempt
    name = JobName(_prefix(plane), notice.run, notice.rank, number)
    known = next((one for one in seen.record.attempts if one.attempt == number), None)
    if known is None or (known.was_created and known is not current):
        return Reaction(f"dropped: attempt {number} is not the current one", name)
    if not known.was_created:
        return Reaction(_end_late_job(replica, known), name)
    if seen.record.decision is not None:
        # A call that failed after it had decided is repeated with the same notice.
        return reaction_to(name, end_attempt(plane, replica, known, seen))
    seconds = min(_SECONDS[notice.kind], budget.remaining)
    return _said(name, replica, look_until_ended(plane, replica, known, seconds, notice))


def _replica(plane: ControlPlane, notice: Notice) -> ActiveReplica | None:
    run = plane.runs.find(notice.run)
    if run is None or notice.rank >= run.plan.spec.replicas:
        return None
    replica = run.replica(notice.rank)
    return replica if replica.spec.backend is Backend.HYPERPOD else None


def _said(name: JobName, replica: ActiveReplica, look: Look) -> Reaction:
    """What came of a look. A job that was created while its run was being stopped is stopped."""
    if look.ended:
        return reaction_to(name, look.outcome)
    if look.job is None:
        return Reaction("dropped: there is no such job", name)
    what = f"noted: {look.job.status}/{look.job.secondary}"
    if look.job.status == JobStatus.IN_PROGRESS and replica.run.is_stopping:
        replica.jobs.stop(look.job.name)
        what += ", stopped: the run is stopping"
    return Reaction(what, name)


def _end_late_job(replica: ActiveReplica, refused: Attempt) -> str:
    """Stop a job that was created after all: its request was refused, and then it was not found."""
    job = replica.own_job(refused)
    if job is None or job.end is not None:
        return "dropped: its launch was recorded as refused"
    note_launch(replica, job.applied_to(refused, stopping=False))
    replica.jobs.stop(job.name)
    return f"{job.status}/{job.secondary}, stopped: its launch was recorded as refused"


def heed_cluster(plane: ControlPlane, cluster: str, budget: TimeBudget) -> list[Reaction]:
    """Look at the stack's jobs on a cluster whose nodes an event is about, until this look has found a loss.

    Listing them is one call for each namespace. After a loss the operator needs a while, so they are listed again, for
    a minute at most. Other news are noted, and end no look: the loss may be still to come. Nor does a loss that
    another look has decided: there may be one for each of them.
    """
    allowed, pause = TimeBudget.of(min(LOSS_SECONDS, budget.remaining)), _FIRST_PAUSE_SECONDS
    reactions: list[Reaction] = []
    while True:
        listed = [(jobs, job) for jobs in _namespaces(plane, cluster) for job in jobs.current(_prefix(plane))]
        alive = [one for one in listed if one[1].end is None]
        news = [one for one in in_parallel(lambda one: _changed(plane, *one), listed) if one is not None]
        reactions += [one.reaction for one in news]
        if any(one.is_loss for one in news) or not alive or allowed.is_spent:
            return reactions
        clock.sleep(min(pause, allowed.remaining))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _prefix(plane: ControlPlane) -> str:
    return plane.settings.job_prefix


@dataclass(frozen=True)
class _News:
    """What was done about a listed job. `is_loss`: it has failed or was started again, and this look has found it."""

    reaction: Reaction
    is_loss: bool


def _changed(plane: ControlPlane, jobs: Jobs, job: Job) -> _News | None:
    """What was done about a listed job; None where it is not the current attempt's, or nothing about it is new."""
    name = JobName.parse(job.name, _prefix(plane))
    run = None if name is None else plane.runs.find(name.run)
    if name is None or run is None or name.rank >= run.plan.spec.replicas or run.jobs_of(name.rank) is not jobs:
        return None
    replica = run.replica(name.rank)
    record = replica.record().record
    if record is None or record.decision is not None or record.current.job != job.name:
        return None
    if not _is_news(record, job) or not replica.has_own(job, record.current):
        return None
    known = record.current.cluster.restarts if record.current.cluster is not None else 0
    if job.end is None:
        note_look(replica.update, job)
        return _News(_said(name, replica, Look(job)), restarts_of(job) > known)
    look = look_until_ended(plane, replica, record.current, 0.0)
    fresh = look.outcome is not None and look.outcome.fresh
    return _News(_said(name, replica, look), fresh and job.status == JobStatus.FAILED)


def _is_news(record: Record, job: Job) -> bool:
    current = record.current
    seen = job.applied_to(current, stopping=False)
    return job.end is not None or (seen.secondary, seen.cluster) != (current.secondary, current.cluster)


def _namespaces(plane: ControlPlane, cluster: str) -> list[ClusterJobs]:
    return cast("ClusterService", plane.backends.service(Backend.HYPERPOD)).of_cluster(cluster)
