"""What react does about a notice that a round was committed without a replica: its place may not answer.

A notice is not believed: it says where to look. One that is lost delays the replica's move until the re-arm.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from muster.contract.names import JobName
from muster.contract.run.notices import Notice, NoticeKind
from muster.control.attempt_end import end_attempt
from muster.control.control_plane import ControlPlane
from muster.control.jobs import PlaceSilentError
from muster.control.left_behind import given_up
from muster.control.react import Reaction, reaction_to
from muster.control.runtime.parallel import in_parallel


def heed_notices(plane: ControlPlane, notices: Iterable[Notice]) -> list[Reaction]:
    """Look for the jobs of the replicas that `notices` name.

    Raises:
        Exception: the first error, after all of them were tried; a repetition of the whole is safe.
    """
    return in_parallel(partial(_heed, plane), notices)


def _heed(plane: ControlPlane, notice: Notice) -> Reaction:
    run = plane.runs.find(notice.run)
    is_known = run is not None and run.plan.spec.places is not None and notice.rank < run.plan.spec.replicas
    if run is None or not is_known or notice.kind is not NoticeKind.MISSING:
        return Reaction("dropped: no such replica in a place")
    replica = run.replica(notice.rank)
    seen = replica.record()
    if seen.record is None or seen.record.decision is not None:
        return Reaction("dropped: no attempt of it is running")
    current = seen.record.current
    name = JobName(plane.settings.job_prefix, notice.run, notice.rank, current.attempt)
    if current.where is None or current.where.is_home or not current.has_proven_job:
        return Reaction("dropped: it has no job in a place", name)
    try:
        job = replica.own_job(current)
    except PlaceSilentError as silent:
        ended = given_up(replica, current, silent, unwanted="the run is stopping" if run.is_stopping else None)
        if ended is None:
            return Reaction(f"{silent}, and the replica waits", name)
    else:
        if job is None or job.end is None:
            return Reaction("its job has not ended", name)
        ended = replica.jobs_of(current).explained(job).applied_to(current, stopping=False)
    return reaction_to(name, end_attempt(plane, replica, ended, seen))
