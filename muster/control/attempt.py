"""Attempt: bring one attempt of one replica to life, and make sure that its end is learnt.

Token first, job second, look third. The record knows the token before a job exists that could end, so no order of
events loses an end; and whoever calls again (a retry, a re-arming after a timeout) repairs what was lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.aws.failures import FailureClass
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import ATTEMPT_MAX, REPLICAS_MAX, RUN_MAX
from muster.contract.run.job_request import training_job_request
from muster.contract.run.record import NOT_CREATED, Attempt, Decision, Next, Record
from muster.control.active_run import ActiveRun
from muster.control.announcements import tell_of_conclusion, tell_of_launch
from muster.control.aws.bus import Bus
from muster.control.aws.jobs import Job, LaunchRefusedError
from muster.control.aws.tokens import Tokens, remaining_delay
from muster.control.cost_ceiling import note_launch, spent_ceiling
from muster.control.decide import shortages
from muster.control.outcome import End, conclude
from muster.control.runtime import clock

# Step Functions: a task token has at most 2,048 characters.
Token = Annotated[str, Field(min_length=1, max_length=2_048)]


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
    """The replica's record after the call: it holds the token, unless the attempt is over or another's turn came."""

    record: Record | None
    repeated: bool


def attempt(run: ActiveRun, tokens: Tokens, bus: Bus, request: AttemptRequest) -> Launch:
    """Launch or adopt the attempt's job; complete the token at once where there is nothing to wait for."""
    stopping = run.documents.fence() is not None
    armed = _arm(run, request, stopping=stopping)
    answer = _answer_at_once(request, armed.record)
    if answer is not None:
        launch, decision = answer
        tokens.complete(request.token, request.run, request.rank, decision)
        return launch
    end = _launch(run, request, armed, stopping=stopping)
    if isinstance(end, Launch):
        if end is Launch.CREATED:
            tell_of_launch(bus, run, request.rank, request.attempt)
        return end
    concluded = conclude(run, request.rank, request.attempt, end)
    if concluded is not None:
        tokens.complete(concluded.token, request.run, request.rank, concluded.decision)
        tell_of_conclusion(bus, run, concluded)
    return Launch.CONCLUDED


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

    return _Armed(run.documents.update_record(request.rank, change), repeated)


def _next_attempt(run: ActiveRun, request: AttemptRequest, record: Record | None) -> Record | None:
    decided = Decision(next=Next.RERUN, attempt=1) if record is None else record.decision
    if decided is None or decided.next is not Next.RERUN or decided.attempt != request.attempt:
        message = f"attempt {request.attempt} of replica {request.rank} was not decided on; it is not launched"
        raise LookupError(message)
    if remaining_delay(decided) > 0:
        return None
    name = run.job_name(request.rank, request.attempt)
    return Record(
        run=request.run,
        rank=request.rank,
        token=request.token,
        armed_at=request.armed_at,
        attempts=(
            *(record.attempts if record else ()),
            Attempt(attempt=request.attempt, job=str(name), launched_at=clock.now()),
        ),
    )


def _answer_at_once(request: AttemptRequest, record: Record | None) -> tuple[Launch, Decision] | None:
    """What to tell the workflow without looking at any job; None when the attempt is to be launched."""
    current = record.current.attempt if record else 0
    decided = record.decision if record else None
    if record is not None and (current > request.attempt or request.armed_at < record.armed_at):
        # The workflow that still waits on this token, if there is one, is led back to the present.
        return Launch.SUPERSEDED, Decision(next=Next.RERUN, attempt=current, reason="superseded")
    if current == request.attempt:
        return None if decided is None else (Launch.CONCLUDED, decided)
    if decided is not None and remaining_delay(decided) > 0:
        return Launch.EARLY, decided
    return Launch.REFUSED, Decision(next=Next.FAIL, attempt=request.attempt, reason="the run is stopping")


def _launch(run: ActiveRun, request: AttemptRequest, armed: _Armed, *, stopping: bool) -> Launch | End:
    """See to it that the job exists; its end where it has ended, or cannot be."""
    name = str(run.job_name(request.rank, request.attempt))
    # A job that an earlier call made is looked up first: it is the likely case, and creating it again would be refused.
    job = run.jobs.find(name) if armed.repeated else None
    if job is not None:
        return _adopt(run, request, job)
    if stopping:
        return _not_created(FailureClass.STOPPED_BY_MUSTER, "the run was stopped before the launch")
    # The rerun may have waited for hours in which the others have spent what was left.
    if request.attempt > 1 and (ceiling := spent_ceiling(run)):
        return _not_created(FailureClass.UNKNOWN, ceiling)
    shortage = shortages(armed.record.attempts) if armed.record else 0
    job_request = training_job_request(run.plan, request.rank, request.attempt, shortage)
    try:
        created = run.jobs.create(job_request)
    except LaunchRefusedError as refused:
        # Only the last of several tries was refused: the answer of an earlier one may have been lost.
        job = run.jobs.find(name)
        return _adopt(run, request, job) if job else _not_created(refused.failure_class, refused.reason)
    except Exception:
        _obey_fence(run, name)
        raise
    if created:
        note_launch(run, request.rank, request.attempt, job_request["ResourceConfig"].get("InstanceType"))
        _obey_fence(run, name)
        return Launch.CREATED
    job = run.jobs.find(name)
    if job is None:
        message = f"{name} is in use and cannot be found"
        raise ConnectionError(message)
    return _adopt(run, request, job)


def _adopt(run: ActiveRun, request: AttemptRequest, job: Job) -> Launch | End:
    """Take over a job that exists under our name, if it is ours."""
    if not run.owns(run.jobs.tags(job.arn), request.rank, request.attempt):
        reason = (
            f"A training job named {job.name} exists and is not this run's. It was left alone. "
            "Start the run under another name."
        )
        return _not_created(FailureClass.INVALID_REQUEST, reason)
    # Whoever made it may not have come as far as to note it.
    note_launch(run, request.rank, request.attempt, job.instance_type)
    if job.end is not None:
        return End.of_job(job.end, job.changed_at, job.artifacts)
    _obey_fence(run, job.name)
    return Launch.ADOPTED


def _not_created(failure_class: FailureClass, reason: str) -> End:
    status = JobStatus.STOPPED if failure_class is FailureClass.STOPPED_BY_MUSTER else JobStatus.FAILED
    return End(failure_class, reason, status=status, secondary=NOT_CREATED)


def _obey_fence(run: ActiveRun, name: str) -> None:
    """A fence raised while the job was being made did not see it: then it is ours to stop."""
    if run.documents.fence() is not None:
        run.jobs.stop(name)
