"""Attempt: bring one attempt of one replica to life, and make sure that its end is learnt.

Token first, job second, look third. The record knows the token before a job exists that could end, so no order of
events loses an end; and whoever calls again (a retry, a re-arming after a timeout, a redrive) repairs what was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.errors import ForeignJobError
from muster.contract.failures import FailureClass
from muster.contract.names import ATTEMPT_MAX, REPLICAS_MAX, RUN_MAX, JobName
from muster.contract.plan import Plan
from muster.contract.record import Attempt, Decision, Next, Record
from muster.contract.request import job_tags, training_job_request
from muster.contract.status import JobStatus
from muster.control import clock
from muster.control.active_run import ActiveRun
from muster.control.conclude import End, conclude
from muster.control.jobs import Job, LaunchRefusedError

# Step Functions: a task token has at most 2,048 characters.
Token = Annotated[str, Field(min_length=1, max_length=2_048)]


class AttemptRequest(BaseModel):
    """What the workflow sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]
    rank: Annotated[int, Field(ge=0, lt=REPLICAS_MAX)]
    attempt: Annotated[int, Field(ge=1, le=ATTEMPT_MAX)]
    token: Token
    armed_at: Annotated[str, Field(min_length=1, max_length=64)]


class Launch(StrEnum):
    """What came of a call."""

    CREATED = "created"
    ADOPTED = "adopted"
    CONCLUDED = "concluded"
    REFUSED = "refused: the run is stopping"
    SUPERSEDED = "superseded"


@dataclass(frozen=True)
class Armed:
    """The token is in the record. `before`: the attempt was there already, and its job may be."""

    record: Record
    before: bool


def attempt(run: ActiveRun, request: AttemptRequest) -> Launch:
    """Launch or adopt the attempt's job; complete the token at once where the attempt has already ended."""
    stopping = run.documents.fence() is not None
    armed = _arm(run, request, stopping=stopping)
    if armed is None:
        return Launch.SUPERSEDED
    if isinstance(armed, Decision):
        run.tokens.complete(request.token, request.run, request.rank, armed)
        return Launch.REFUSED
    if armed.record.decision is not None:
        run.tokens.complete(request.token, request.run, request.rank, armed.record.decision)
        return Launch.CONCLUDED
    return _launch(run, request, armed)


def _arm(run: ActiveRun, request: AttemptRequest, *, stopping: bool) -> Armed | Decision | None:
    """Put token and attempt into the record. A decision: nothing may be launched. None: a newer call was here."""
    before = False

    def change(record: Record | None) -> Record | None:
        nonlocal before
        before = record is not None and record.current.attempt == request.attempt
        if record is None or record.current.attempt < request.attempt:
            return None if stopping else _next_attempt(run.plan, request, record)
        is_current = before and record.decision is None
        if is_current and request.armed_at >= record.armed_at:
            return record.model_copy(update={"token": request.token, "armed_at": request.armed_at})
        return None

    record = run.documents.update_record(request.rank, change)
    if record is None or record.current.attempt < request.attempt:
        return Decision(next=Next.FAIL, attempt=request.attempt, reason="the run is stopping")
    if record.current.attempt > request.attempt or request.armed_at < record.armed_at:
        return None
    return Armed(record, before)


def _next_attempt(plan: Plan, request: AttemptRequest, record: Record | None) -> Record:
    decided = Decision(next=Next.RERUN, attempt=1) if record is None else record.decision
    if decided is None or decided.next is not Next.RERUN or decided.attempt != request.attempt:
        message = f"attempt {request.attempt} of replica {request.rank} was not decided on; it is not launched"
        raise LookupError(message)
    name = JobName(plan.place.job_prefix, plan.run, request.rank, request.attempt)
    fresh = Attempt(attempt=request.attempt, job=str(name), launched_at=clock.now())
    if record is None:
        return Record(
            run=plan.run, rank=request.rank, token=request.token, armed_at=request.armed_at, attempts=(fresh,)
        )
    return record.model_copy(
        update={
            "token": request.token,
            "armed_at": request.armed_at,
            "attempts": (*record.attempts, fresh),
            "decision": None,
        }
    )


def _launch(run: ActiveRun, request: AttemptRequest, armed: Armed) -> Launch:
    name = armed.record.current.job
    # A job that an earlier call made is looked up first: it is the likely case, and creating it again would be refused.
    job = run.jobs.find(name) if armed.before else None
    if job is None:
        try:
            created = run.jobs.create(training_job_request(run.plan, request.rank, request.attempt))
        except LaunchRefusedError as refused:
            return _conclude(run, request, _not_created(refused.failure_class, refused.reason))
        if created:
            _obey_fence(run, name)
            return Launch.CREATED
        job = run.jobs.find(name)
    if job is None:
        message = f"{name} is in use and cannot be found"
        raise LookupError(message)
    return _adopt(run, request, job)


def _adopt(run: ActiveRun, request: AttemptRequest, job: Job) -> Launch:
    """Take over a job that exists under our name, if it is ours; learn its end if it has ended."""
    try:
        run.jobs.require_ours(job.name, job.arn, job_tags(run.plan, request.rank, request.attempt))
    except ForeignJobError as foreign:
        return _conclude(run, request, _not_created(FailureClass.INVALID_REQUEST, str(foreign)))
    if job.end is not None:
        return _conclude(run, request, End.of_job(job.end, job.changed_at, job.artifacts))
    _obey_fence(run, job.name)
    return Launch.ADOPTED


def _conclude(run: ActiveRun, request: AttemptRequest, end: End) -> Launch:
    conclude(run, request.rank, request.attempt, end)
    return Launch.CONCLUDED


def _not_created(failure_class: FailureClass, reason: str) -> End:
    return End(failure_class, reason, status=JobStatus.FAILED, secondary="NotCreated")


def _obey_fence(run: ActiveRun, name: str) -> None:
    """A fence raised while the job was being made did not see it: then it is ours to stop."""
    if run.documents.fence() is not None:
        run.jobs.stop(name)
