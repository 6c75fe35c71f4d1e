"""Attempt: launch one attempt of one replica, so that its end always reaches the workflow.

First the task token is stored, then the job is created, then it is checked. The record holds the token before the job
exists, so no order of events loses the job's end. A second call (a retry, or a re-arm after a time-out) repairs a lost
event.

What each request to S3 makes certain, in this order:

1. The fence is read: a run that is being stopped gets no record of another attempt.
2. The record is read and written by compare-and-swap: nothing is launched twice.
3. The roll-up is written: clients see the attempt.
4. The fence is read, after the record exists and before the job does: a settlement that found no record of the attempt
   raised its fence before, so the attempt launches nothing that the result does not know.
5. The fence is read once more after the job was created: the call that raised it in between may not have found the job.

The seats of an elastic run are read beside the fence, in the same order (`muster.control.seat_keeper`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.backend import Backend
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Decision, Next, Record
from muster.contract.run.where import Where
from muster.control.active_run import ActiveReplica
from muster.control.attempt_end import deliver_end, end_attempt
from muster.control.attempt_request import AttemptRequest, Launch
from muster.control.aws.launcher_sessions import Launcher
from muster.control.aws.task_tokens import remaining_delay
from muster.control.control_plane import ControlPlane
from muster.control.cost_ceiling import note_launch, reached_ceiling
from muster.control.documents import Seen
from muster.control.jobs import Job, Jobs, LaunchRefusedError, PlaceDeniesError, PlaceSilentError
from muster.control.left_behind import call_back, given_up, not_created
from muster.control.reporting.announcements import announce_launch
from muster.control.seat_keeper import seat_keeper

_Placed = Callable[[tuple[Attempt, ...]], Where | None]


@dataclass(frozen=True)
class _Armed:
    """The replica's record after arming: it holds the token, unless the attempt has ended or is not the current one."""

    record: Record | None
    repeated: bool
    """Whether an earlier call has armed the same attempt."""
    early: bool
    """Whether the rerun is not due yet. Decided once: a second look at the clock could find that it is due by then."""


def attempt(plane: ControlPlane, launcher: Launcher, replica: ActiveReplica, request: AttemptRequest) -> Launch:
    """Launch or adopt the attempt's job. Complete the token at once where there is nothing to wait for."""
    seen = replica.record()
    stopping = replica.run.is_stopping
    seats = seat_keeper(replica.run.plan.spec)
    if seats is not None and not stopping and (held := seats.hold(plane, replica, request, seen.record)) is not None:
        call_back(replica, seen.record)
        return held
    armed = _arm(replica, request, seen, stopping=stopping)
    record = armed.record
    if record is None or _is_settled(request, record):
        return _answer(plane, replica, request, armed)
    # Once more, now that the record exists: a run that was settled in between found none, so its result says that this
    # attempt was not launched, and it must not be.
    unwanted = None
    if stopping or replica.run.is_stopping:
        unwanted = "the run is stopping"
    elif seats is not None and seats.is_closed(replica):
        unwanted = "its seat is not wanted"
    launched = _launch(launcher, replica, record, repeated=armed.repeated, unwanted=unwanted)
    if isinstance(launched, Launch) or launched.was_created:
        _announce_launch(plane, request, armed, is_new=launched is Launch.CREATED)
    # Only now: a place that is still silent takes seconds to be found so.
    call_back(replica, record)
    if isinstance(launched, Attempt):
        refused_at = None if launched.was_created else request.armed_at
        outcome = end_attempt(plane, replica, launched, refused_at=refused_at)
        return Launch.SUPERSEDED if outcome is None else Launch.CONCLUDED
    return launched


def _announce_launch(plane: ControlPlane, request: AttemptRequest, armed: _Armed, *, is_new: bool) -> None:
    """Announce that the current attempt has a job, at least once; copies of the event have the same id.

    `is_new`: this call has created it. Otherwise a try before this one may have created it, and ended before it
    announced it. A re-arm follows no such try: the workflow repeats a failed call until one comes through, and only
    then waits for a time-out.
    """
    rearmed = armed.repeated and request.retry == 0 and not is_new
    if armed.record is not None and not rearmed:
        announce_launch(plane.bus, armed.record)


def _arm(replica: ActiveReplica, request: AttemptRequest, seen: Seen, *, stopping: bool) -> _Armed:
    """Store the token in the record, with a new attempt unless the run is stopping or the rerun is not due yet."""
    repeated = early = False
    # Asked once, and only where an attempt is launched: it may read the roll-up.
    where = cache(replica.placed)

    def change(record: Record | None) -> Record | None:
        nonlocal repeated, early
        repeated = record is not None and record.current.attempt == request.attempt
        early = False
        if record is None or record.current.attempt < request.attempt:
            if stopping:
                return None
            early = remaining_delay(_decision_for(request, record)) > 0
            return None if early else _next_attempt(replica, request, record, where)
        if repeated and record.decision is None and request.armed_at >= record.armed_at:
            return record.model_copy(update={"token": request.token, "armed_at": request.armed_at})
        return None

    record = replica.update(change, seen).record
    return _Armed(record, repeated, early)


def _decision_for(request: AttemptRequest, record: Record | None) -> Decision:
    """The decision after which the requested attempt is launched.

    Raises:
        LookupError: there is none.
    """
    decided = Decision(next=Next.RERUN, attempt=1) if record is None else record.decision
    if decided is None or decided.next is not Next.RERUN or decided.attempt != request.attempt:
        message = f"attempt {request.attempt} of replica {request.rank} is not launched: no decision for it is recorded"
        raise LookupError(message)
    return decided


def _next_attempt(replica: ActiveReplica, request: AttemptRequest, record: Record | None, where: _Placed) -> Record:
    before = record.attempts if record else ()
    new = replica.launched(request.attempt, before, where(before))
    armed = Record(
        run=request.run,
        rank=request.rank,
        token=request.token,
        armed_at=request.armed_at,
        attempts=(*before, new),
    )
    # What a newer version of Muster has added to the record stays.
    return armed if record is None else record.model_copy(update=dict(armed))


def _is_settled(request: AttemptRequest, record: Record) -> bool:
    """Whether the record alone answers the request: it is stale, decided, early or refused."""
    current = record.current.attempt
    return current != request.attempt or request.armed_at < record.armed_at or record.decision is not None


def _answer(plane: ControlPlane, replica: ActiveReplica, request: AttemptRequest, armed: _Armed) -> Launch:
    """Complete the request's token with the decision in the record."""
    record = armed.record
    current, decided = (record.current.attempt, record.decision) if record else (0, None)
    if record is not None and (current > request.attempt or request.armed_at < record.armed_at):
        # A workflow that still waits for this token continues with the current attempt.
        launch, decision = Launch.SUPERSEDED, Decision(next=Next.RERUN, attempt=current, reason="superseded")
    elif record is not None and decided is not None and current == request.attempt:
        if record.current.was_created:
            _announce_launch(plane, request, armed, is_new=False)
        deliver_end(plane, replica, record, request.token)
        return Launch.CONCLUDED
    elif armed.early and decided is not None:
        launch, decision = Launch.EARLY, decided
    else:
        refused = Decision(next=Next.FAIL, attempt=request.attempt, reason="the run is stopping")
        launch, decision = Launch.REFUSED, refused
    plane.tokens.complete(request.token, request.run, request.rank, decision)
    return launch


def _launch(
    launcher: Launcher, replica: ActiveReplica, record: Record, *, repeated: bool, unwanted: str | None
) -> Launch | Attempt:
    """Make sure that the job exists. Returns the ended attempt if its job has ended or cannot be created.

    `unwanted`: why no job is created any more.
    """
    current = record.current
    # After an earlier call the job probably exists, so it is looked up first.
    try:
        job = _existing(replica, current) if repeated else None
    except PlaceSilentError as silent:
        return given_up(replica, current, silent, unwanted=unwanted) or Launch.SILENT
    if job is not None:
        return _adopt(replica, current, job)
    if unwanted is not None:
        return not_created(current, FailureClass.STOPPED_BY_MUSTER, "it was stopped before the launch")
    # While the rerun was delayed, the other replicas may have reached the ceiling.
    if current.attempt > 1 and (ceiling := reached_ceiling(replica.run)):
        return not_created(current, FailureClass.UNKNOWN, ceiling)
    if current.where is not None and (closed := replica.run.backends.placement.closed(replica, current)):
        return not_created(current, FailureClass.CAPACITY, closed)
    return _create(launcher, replica, record, repeated=repeated)


def _create(launcher: Launcher, replica: ActiveReplica, record: Record, *, repeated: bool) -> Launch | Attempt:
    """Create the job of the current attempt."""
    current = record.current
    jobs = replica.jobs_of(current)
    try:
        created = _creator(launcher, replica, current).create(replica.request(record.attempts))
    except PlaceSilentError as silent:
        if silent.sent:
            # The job may exist: the next try looks for it.
            raise
        return given_up(replica, current, silent, is_first=not repeated) or Launch.SILENT
    except LaunchRefusedError as refused:
        # Only the last of several tries was refused; the response to an earlier one may have been lost.
        job = _found(jobs, current)
        if job is not None:
            return _adopt(replica, current, job)
        left = _denied(replica, current, refused, is_first=not repeated)
        return left or not_created(current, refused.failure_class, refused.reason)
    except Exception:
        _obey_fence(replica, current)
        raise
    if created.is_new:
        note_launch(replica, current)
        jobs.note(replica.update, created.job)
        _obey_fence(replica, current)
        return Launch.CREATED
    job = jobs.find(current.job)
    if job is None:
        message = f"the job name {current.job} is in use, but a look at it does not find it"
        raise ConnectionError(message)
    return _adopt(replica, current, job)


def _found(jobs: Jobs, current: Attempt) -> Job | None:
    """The job whose creation was refused, if there is one; a place that also denies the look has refused it."""
    with suppress(PlaceDeniesError):
        return jobs.find(current.job)
    return None


def _denied(replica: ActiveReplica, current: Attempt, refused: LaunchRefusedError, *, is_first: bool) -> Attempt | None:
    """The attempt as it ends where its place denied the launch, and its replica has another one."""
    if not refused.denied or current.where is None or current.where.is_home:
        return None
    denies = PlaceDeniesError(current.where.place, refused.reason)
    return given_up(replica, current, denies, is_first=is_first)


def _existing(replica: ActiveReplica, current: Attempt) -> Job | None:
    """The job with the attempt's name. Where the attempt had one that is gone: what its absence means.

    Otherwise a job that a person has deleted would be created again.
    """
    jobs = replica.jobs_of(current)
    job = jobs.find(current.job)
    if current.has_proven_job and (job is None or not replica.has_own(job, current)):
        return jobs.vanished(current.job) or job
    return job


def _creator(launcher: Launcher, replica: ActiveReplica, current: Attempt) -> Jobs:
    """Who creates the job: SageMaker gives the rights of a training job by the session that creates it."""
    where = current.where
    if where is not None and not where.is_home:
        return replica.run.backends.placement.launching(replica.run, replica.rank, where.place)
    on_sagemaker = replica.spec.backend is Backend.TRAINING_JOB
    return launcher.jobs(replica.run.plan) if on_sagemaker else replica.jobs


def _adopt(replica: ActiveReplica, current: Attempt, job: Job) -> Launch | Attempt:
    """Adopt an existing job with the attempt's name, if it is this run's."""
    jobs = replica.jobs_of(current)
    if not replica.has_own(job, current):
        reason = (
            f"A {jobs.noun} named {job.name} exists and does not belong to this run. It was not changed. "
            "Start the run with another name."
        )
        return not_created(current, FailureClass.INVALID_REQUEST, reason)
    job = jobs.explained(job)
    seen = job.applied_to(current, stopping=False)
    # The call that created the job may have failed before it recorded the launch.
    note_launch(replica, seen)
    if job.end is not None:
        return seen
    jobs.note(replica.update, job)
    _obey_fence(replica, current)
    return Launch.ADOPTED


def _obey_fence(replica: ActiveReplica, current: Attempt) -> None:
    """Stop the job if a fence was raised during its creation, because the call that raised it did not find the job."""
    if replica.run.is_stopping:
        replica.jobs_of(current).stop(current.job)
    elif (seats := seat_keeper(replica.run.plan.spec)) is not None:
        seats.let_leave(replica, current.attempt)
