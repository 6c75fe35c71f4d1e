"""An attempt that could neither be launched nor checked: its replica is lost, and the run continues where it can.

The function attempt has failed for hours, or with an error that no repetition mends. The function stop does this work,
because what keeps the one from working may not affect the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from muster.contract.errors import DocumentError
from muster.contract.names import ATTEMPT_MAX, REPLICAS_MAX
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Decision, Next, Record
from muster.control.attempt_end import Outcome, end_attempt, for_workflow, mark_loss
from muster.control.jobs import PlaceSilentError
from muster.control.rerun_decision import Facts, give_up
from muster.control.runtime import clock
from muster.control.runtime.function import RunRequest
from muster.control.stop import Reason

if TYPE_CHECKING:
    from muster.control.active_run import ActiveReplica
    from muster.control.control_plane import ControlPlane
    from muster.control.jobs import Job


_NO_TASK = "none"


class LaunchFailure(RunRequest):
    """What the workflow sends when an attempt could neither be launched nor checked, after all retries."""

    rank: Annotated[int, Field(ge=0, lt=REPLICAS_MAX)]
    attempt: Annotated[int, Field(ge=1, le=ATTEMPT_MAX)]
    reason: Reason


def give_up_replica(plane: ControlPlane, failure: LaunchFailure) -> Decision:
    """Record that a replica is lost because it could not be launched, and stop its job, if there is one. Idempotent.

    Returns the decision for its workflow: how the attempt ended, if it has, and otherwise how the run continues.
    """
    run = plane.runs.require(failure.run)
    replica = run.replica(failure.rank)
    # A call that failed may have created the job, and its end may have been missed.
    armed = _armed(replica, failure.attempt)
    try:
        job = replica.jobs_of(armed).find(armed.job)
        if job is not None and not replica.owns_job(job, armed):
            job = None
    except PlaceSilentError:
        job = None
    if job is not None and job.end is not None and (outcome := _concluded(plane, replica, failure.attempt, job)):
        return outcome.decision
    facts = Facts(replica.spec, run.is_stopping, None, clock.now())
    decision = Decision(
        next=Next.FAIL, attempt=failure.attempt, lost=not facts.stopping, reason=replica.masked(failure.reason)
    )

    def change(record: Record | None) -> Record | None:
        # A record, also where there was none: a call that is still on its way could write one, and create the job.
        known = record or _never_armed(replica, failure.attempt)
        return give_up(known, failure.attempt, failure.reason, facts, has_job=job is not None)

    try:
        record = replica.update(change).record
    except DocumentError:
        # The record is perhaps why the replica cannot be launched. The mark counts, and the run does without it.
        record = None
    if record is not None and record.decision is not None:
        decision = record.decision
    elif record is not None:
        # The workflow has fallen behind: it continues with the current attempt.
        return Decision(next=Next.RERUN, attempt=record.current.attempt, reason="superseded")
    if decision.next is Next.FAIL and job is not None and job.end is None:
        replica.jobs_of(armed).stop(job.name)
    mark_loss(replica, decision)
    return for_workflow(run, decision)


def _armed(replica: ActiveReplica, attempt: int) -> Attempt:
    """The attempt as its record has it: in its place."""
    try:
        record = replica.record().record
    except DocumentError:
        record = None
    known = () if record is None else record.attempts
    return next((one for one in known if one.attempt == attempt), replica.launched(attempt, ()))


def _never_armed(replica: ActiveReplica, attempt: int) -> Record:
    """The record of an attempt of which nothing is known. No task waits for its token."""
    first = replica.launched(attempt, ())
    return Record(run=replica.run.plan.run, rank=replica.rank, token=_NO_TASK, armed_at="", attempts=(first,))


def _concluded(plane: ControlPlane, replica: ActiveReplica, attempt: int, job: Job) -> Outcome | None:
    """What follows the end of the job; None where it is not that of the current attempt."""
    try:
        seen = replica.record()
    except DocumentError:
        return None
    if seen.record is None or seen.record.current.attempt != attempt:
        return None
    return end_attempt(plane, replica, job.applied_to(seen.record.current, stopping=False), seen)
