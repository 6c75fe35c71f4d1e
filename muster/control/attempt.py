"""Attempt: launch one attempt of one replica, and make sure that its end is learnt.

Token first, job second, look third. The record holds the token before a job exists that could end, so no order of
events loses an end. Calling again (a retry, a re-arming after a time-out) repairs what was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.aws.failures import FailureClass
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import ATTEMPT_MAX, REPLICAS_MAX, RUN_MAX
from muster.contract.run.attempt import NOT_CREATED, Attempt, requested_type, shortages
from muster.contract.run.job_request import training_job_request
from muster.contract.run.record import Decision, Next, Record
from muster.control.active_run import ActiveRun
from muster.control.announcements import announce_launch
from muster.control.aws.jobs import Job, LaunchRefusedError
from muster.control.aws.tokens import Token, remaining_delay
from muster.control.control_plane import ControlPlane
from muster.control.cost_ceiling import note_launch, reached_ceiling
from muster.control.outcome import announce_end, end_attempt
from muster.control.runtime import clock


class AttemptRequest(BaseModel):
    """What the workflow sends. Unknown fields pass: a running execution keeps its definition over a deployment."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]
    rank: Annotated[int, Field(ge=0, lt=REPLICAS_MAX)]
    attempt: Annotated[int, Field(ge=1, le=ATTEMPT_MAX)]
    token: Token
    entered_at: Annotated[str, Field(min_length=1, max_length=64)]
    retry: Annotated[int, Field(ge=0, le=9_999)] = 0

    @property
    def armed_at(self) -> str:
        """Orders the tokens of a replica; sorts as text. A retry has the time of the state that it is a retry of."""
        return f"{self.entered_at}/{self.retry:04}"


class Launch(StrEnum):
    """What came of a call."""

    CREATED = "created"
    ADOPTED = "adopted"
    CONCLUDED = "concluded"
    REFUSED = "refused: the run is stopping"
    EARLY = "too early for the rerun"
    SUPERSEDED = "superseded"


@dataclass(frozen=True)
class _Armed:
    """The replica's record after the call: it holds the token, unless the attempt is over or another one is current."""

    record: Record | None
    repeated: bool


def attempt(plane: ControlPlane, request: AttemptRequest) -> Launch:
    """Launch or adopt the attempt's job; complete the token at once where there is nothing to wait for."""
    run = plane.runs.require(request.run)
    stopping = run.documents.fence() is not None
    armed = _arm(run, request, stopping=stopping)
    record = armed.record
    if record is None or _is_settled(request, record):
        return _answer(plane, run, request, record, stopping=stopping)
    launched = _launch(run, record, armed, stopping=stopping)
    if isinstance(launched, Attempt):
        end_attempt(plane, run, request.rank, launched)
        return Launch.CONCLUDED
    if launched is Launch.CREATED:
        announce_launch(plane.bus, run, request.rank, request.attempt)
    return launched


def _arm(run: ActiveRun, request: AttemptRequest, *, stopping: bool) -> _Armed:
    """Put the token into the record, and the attempt where it is new: unless the run is stopping, or too early."""
    repeated = False

    def change(record: Record | None) -> Record | None:
        nonlocal repeated
        repeated = record is not None and record.current.attempt == request.attempt
        if record is None or record.current.attempt < request.attempt:
            return None if stopping else _next_attempt(run, request, record)
        if repeated and record.decision is None and request.armed_at >= record.armed_at:
            return record.model_copy(update={"token": request.token, "armed_at": request.armed_at})
        return None

    return _Armed(run.documents.update_record(request.rank, change).record, repeated)


def _next_attempt(run: ActiveRun, request: AttemptRequest, record: Record | None) -> Record | None:
    decided = Decision(next=Next.RERUN, attempt=1) if record is None else record.decision
    if decided is None or decided.next is not Next.RERUN or decided.attempt != request.attempt:
        message = f"attempt {request.attempt} of replica {request.rank} was not decided on; it is not launched"
        raise LookupError(message)
    if remaining_delay(decided) > 0:
        return None
    before = record.attempts if record else ()
    new = Attempt(
        attempt=request.attempt,
        job=str(run.job_name(request.rank, request.attempt)),
        launched_at=clock.now(),
        instance_type=requested_type(run.plan.spec.of_rank(request.rank), before),
    )
    return Record(
        run=request.run,
        rank=request.rank,
        token=request.token,
        armed_at=request.armed_at,
        attempts=(*before, new),
    )


def _is_settled(request: AttemptRequest, record: Record) -> bool:
    """Whether the workflow is answered without a look at any job: the request is stale, decided, early or refused."""
    current = record.current.attempt
    return current != request.attempt or request.armed_at < record.armed_at or record.decision is not None


def _answer(
    plane: ControlPlane, run: ActiveRun, request: AttemptRequest, record: Record | None, *, stopping: bool
) -> Launch:
    """Complete the request's token with what the record says."""
    current, decided = (record.current.attempt, record.decision) if record else (0, None)
    if record is not None and (current > request.attempt or request.armed_at < record.armed_at):
        # A workflow that still waits on this token is led back to the present.
        superseded = Decision(next=Next.RERUN, attempt=current, reason="superseded")
        return _completed(plane, request, superseded, Launch.SUPERSEDED)
    if record is not None and decided is not None and current == request.attempt:
        announce_end(plane, run, record, decided, token=request.token, fresh=False)
        return Launch.CONCLUDED
    if not stopping and decided is not None and remaining_delay(decided) > 0:
        return _completed(plane, request, decided, Launch.EARLY)
    refused = Decision(next=Next.FAIL, attempt=request.attempt, reason="the run is stopping")
    return _completed(plane, request, refused, Launch.REFUSED)


def _completed(plane: ControlPlane, request: AttemptRequest, decision: Decision, launch: Launch) -> Launch:
    plane.tokens.complete(request.token, request.run, request.rank, decision)
    return launch


def _launch(run: ActiveRun, record: Record, armed: _Armed, *, stopping: bool) -> Launch | Attempt:
    """Make sure that the job exists; the attempt as it has ended where its job has, or cannot be created."""
    rank, current = record.rank, record.current
    # A job that an earlier call made is looked up first: it is the likely case, and creating it again would be refused.
    job = run.jobs.find(current.job) if armed.repeated else None
    if job is not None:
        return _adopt(run, record, job)
    if stopping:
        return _not_created(current, FailureClass.STOPPED_BY_MUSTER, "the run was stopped before the launch")
    # While the rerun was delayed, the other replicas may have spent what was left.
    if current.attempt > 1 and (ceiling := reached_ceiling(run)):
        return _not_created(current, FailureClass.UNKNOWN, ceiling)
    job_request = training_job_request(run.plan, rank, current.attempt, shortages(record.attempts))
    try:
        created = run.jobs.create(job_request)
    except LaunchRefusedError as refused:
        # Only the last of several tries was refused: the answer of an earlier one may have been lost.
        job = run.jobs.find(current.job)
        return _adopt(run, record, job) if job else _not_created(current, refused.failure_class, refused.reason)
    except Exception:
        _obey_fence(run, current.job)
        raise
    if created:
        note_launch(run, rank, current)
        _obey_fence(run, current.job)
        return Launch.CREATED
    job = run.jobs.find(current.job)
    if job is None:
        message = f"{current.job} is in use and cannot be found"
        raise ConnectionError(message)
    return _adopt(run, record, job)


def _adopt(run: ActiveRun, record: Record, job: Job) -> Launch | Attempt:
    """Take over a job that exists under our name, if it is ours."""
    rank, current = record.rank, record.current
    if not run.owns(run.jobs.tags(job.arn), rank, current.attempt):
        reason = (
            f"A training job named {job.name} exists and is not this run's. It was left alone. "
            "Start the run under another name."
        )
        return _not_created(current, FailureClass.INVALID_REQUEST, reason)
    seen = job.applied_to(current, stopping=False)
    # The call that created the job may have ended before it recorded the launch.
    note_launch(run, rank, seen)
    if job.end is not None:
        return seen
    _obey_fence(run, job.name)
    return Launch.ADOPTED


def _not_created(current: Attempt, failure_class: FailureClass, reason: str) -> Attempt:
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


def _obey_fence(run: ActiveRun, name: str) -> None:
    """Stop the job if a fence was raised while it was being created: the call that raised the fence did not see it."""
    if run.documents.fence() is not None:
        run.jobs.stop(name)
