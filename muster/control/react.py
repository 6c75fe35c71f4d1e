"""React: record a SageMaker job-state-change event for its replica, and decide what follows the end of an attempt.

Events may arrive twice, late, out of order or not at all. Only the job's name is trusted, and only after its tags have
shown that Muster created the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)

from muster.contract import names, timestamps
from muster.contract.aws.failure_classes import JobEnd
from muster.contract.aws.job_status import JobStatus
from muster.contract.aws.partitions import Locality
from muster.contract.backend import Backend
from muster.contract.names import JobName
from muster.contract.run.attempt import MESSAGE_MAX, Attempt, Transition, granted_type
from muster.contract.run.record import Decision, Record
from muster.contract.text import shortened
from muster.control.active_run import ActiveReplica
from muster.control.attempt_end import Outcome, end_attempt
from muster.control.control_plane import ControlPlane
from muster.control.cost_ceiling import note_end, note_launch, with_bill
from muster.control.documents import Seen
from muster.control.runtime import clock
from muster.control.runtime.function import logger
from muster.control.seat_keeper import seat_keeper

JOB_EVENT = "SageMaker Training Job State Change"
"""The type of EventBridge's events about training jobs."""
_TERMINAL = {status.value for status in JobStatus if status.is_terminal}
# Per attempt: repeated interruptions must not let the record grow without limit.
_HISTORY_MAX = 200


def _or_default(default: object) -> WrapValidator:
    """An optional field: a value that cannot be read counts as missing, and the event is still used."""

    def read(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError:
            return default

    return WrapValidator(read)


class _StatusTransition(BaseModel):
    model_config = ConfigDict(extra="ignore")

    Status: str = ""
    StartTime: float = 0
    StatusMessage: Annotated[str, _or_default("")] = ""


class _Artifacts(BaseModel):
    model_config = ConfigDict(extra="ignore")

    S3ModelArtifacts: str | None = None


class Origin(NamedTuple):
    """Where AWS says that an event comes from. Outposts send theirs on, and AWS keeps both."""

    account: str
    region: str


class JobStateChange(BaseModel):
    """The fields of the event's detail that Muster reads. Unknown statuses are accepted."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    TrainingJobName: Annotated[str, Field(min_length=1, max_length=names.JOB_NAME_MAX)]
    TrainingJobStatus: Annotated[str, Field(min_length=1, max_length=64)]
    SecondaryStatus: Annotated[str, Field(max_length=64), _or_default("")] = ""
    SecondaryStatusTransitions: Annotated[tuple[_StatusTransition, ...], _or_default(())] = ()
    FailureReason: Annotated[str | None, _or_default(None)] = None
    LastModifiedTime: Annotated[float, _or_default(0.0)] = 0.0
    ResourceConfig: Annotated[dict[str, JsonValue], _or_default({})] = Field(default_factory=dict)
    ModelArtifacts: Annotated[_Artifacts | None, _or_default(None)] = None
    Tags: Annotated[dict[str, str], _or_default({})] = Field(default_factory=dict)
    origin: Origin | None = None
    """None: the stack's own region."""

    @classmethod
    def of(cls, event: Mapping[str, object]) -> Self:
        """That of an event of EventBridge."""
        detail = event.get("detail")
        origin = Origin(str(event.get("account")), str(event.get("region")))
        return cls.model_validate({**detail, "origin": origin} if isinstance(detail, dict) else detail)

    @field_validator("Tags", mode="before")
    @classmethod
    def _tags(cls, value: object) -> object:
        # The documentation shows {}, the schema a list of {Key, Value}.
        if isinstance(value, list):
            return {str(tag.get("Key")): str(tag.get("Value")) for tag in value if isinstance(tag, dict)}
        return value or {}

    @property
    def history(self) -> tuple[Transition, ...]:
        """The secondary statuses of the job so far."""
        return tuple(
            Transition(
                at=timestamps.from_epoch_milliseconds(transition.StartTime),
                secondary=transition.Status,
                message=shortened(" ".join(transition.StatusMessage.split()), MESSAGE_MAX),
            )
            for transition in self.SecondaryStatusTransitions[-_HISTORY_MAX:]
        )

    def seen(self, attempt: Attempt) -> Attempt:
        """`attempt` as the event shows its job."""
        return attempt.model_copy(
            update={
                "status": self.TrainingJobStatus,
                "secondary": self.SecondaryStatus,
                "history": self.history,
                "instance_type": granted_type(self.ResourceConfig) or attempt.instance_type,
            }
        )

    def ended(self, attempt: Attempt) -> Attempt:
        """`attempt` with its end from the event, whose status is terminal."""
        end = JobEnd(JobStatus(self.TrainingJobStatus), self.SecondaryStatus, self.FailureReason or "")
        at = timestamps.from_epoch_milliseconds(self.LastModifiedTime) if self.LastModifiedTime else clock.now()
        artifacts = self.ModelArtifacts.S3ModelArtifacts if self.ModelArtifacts else None
        return self.seen(attempt).model_copy(update={"artifacts": artifacts}).ended(end, at)


@dataclass(frozen=True)
class Reaction:
    """What was done about an event, in a few words for the log. `decision` is set where this event caused it."""

    what: str
    name: JobName | None = None
    decision: Decision | None = None

    def log(self) -> None:
        """Write it to the function's log."""
        if self.name is not None:
            logger.append_keys(run_id=self.name.run, rank=self.name.rank, attempt=self.name.attempt)
        decision = self.decision
        logger.info(self.what, extra={"decision": decision.model_dump(mode="json") if decision else None})


def react(plane: ControlPlane, event: JobStateChange) -> Reaction:
    """Record the change. At the end of the attempt decide what follows."""
    name = JobName.parse(event.TrainingJobName, plane.settings.job_prefix)
    if name is None:
        return Reaction("dropped: the job's name does not have Muster's form")
    run = plane.runs.find(name.run)
    replica = run.replica(name.rank) if run else None
    seen = replica.record() if replica else None
    if replica is None or seen is None or seen.record is None:
        return Reaction("dropped: no such replica", name)
    known = _recorded(seen.record, name.attempt)
    left = known is not None and _was_left_behind(known, seen.record)
    if known is None or (known.was_created and known is not seen.record.current and not left):
        if known is not None and event.TrainingJobStatus in _TERMINAL:
            # An earlier call may have recorded the end of a job that was created late, and failed at the roll-up.
            replica.write_entry(seen.record)
        return Reaction(f"dropped: attempt {name.attempt} is not the current one", name)
    if not _is_ours(plane, replica, event, known):
        return Reaction("dropped: the job does not belong to this run", name)
    is_late = _is_late(known, seen.record)
    if event.TrainingJobStatus in _TERMINAL and not is_late:
        return reaction_to(name, end_attempt(plane, replica, event.ended(known), seen))
    return Reaction(_end_late_job(replica, event, known) if is_late else _note(replica, event, known, seen), name)


def _is_from_its_place(plane: ControlPlane, replica: ActiveReplica, event: JobStateChange, attempt: Attempt) -> bool:
    """Another account could have a job of that name."""
    if attempt.where is not None and not attempt.where.is_home:
        return event.origin is not None and plane.backends.placement.is_of(attempt.where.place, *event.origin)
    home = Locality.of_arn(replica.run.plan.execution_arn)
    return event.origin is None or event.origin == (home.account, home.region)


def _recorded(record: Record, number: int) -> Attempt | None:
    return next((one for one in record.attempts if one.attempt == number), None)


def _is_late(known: Attempt, record: Record) -> bool:
    """Whether the attempt is over without the end of its job."""
    return _was_left_behind(known, record) or not known.was_created


def _was_left_behind(known: Attempt, record: Record) -> bool:
    """Whether the attempt was given up while its place did not answer."""
    is_over = known is not record.current or record.decision is not None
    return is_over and known.was_created and known.where is not None and known.where.silent_since is not None


def reaction_to(name: JobName, outcome: Outcome | None) -> Reaction:
    """What was done about the end of an attempt."""
    if outcome is None:
        return Reaction("dropped: a newer attempt is the current one", name)
    if not outcome.fresh:
        return Reaction("announced again: the decision was already recorded", name)
    return Reaction("decided", name, outcome.decision)


def _end_late_job(replica: ActiveReplica, event: JobStateChange, refused: Attempt) -> str:
    """Stop a job that SageMaker has created after all, or that runs in a place that answers again.

    Another attempt may train already, so the job is not adopted. What it costs counts; why it was refused stays.
    """
    if event.TrainingJobStatus == JobStatus.IN_PROGRESS:
        note_launch(replica, event.seen(refused))
        replica.jobs_of(refused).stop(refused.job)
    if event.TrainingJobStatus not in _TERMINAL:
        return f"{event.TrainingJobStatus}/{event.SecondaryStatus}, stopped: its {_why_over(refused)}"
    job = event.ended(refused)
    where = None if refused.where is None else refused.where.model_copy(update={"may_run": False})
    kept = {"failure_class": refused.failure_class, "reason": refused.reason, "billable_seconds": None, "where": where}
    if refused.was_created:
        # When it was given up, and its end as it was recorded, decided where the replica went.
        kept |= {"ended_at": refused.ended_at, "status": refused.status, "secondary": refused.secondary}
    # A record masks the last of its attempts, and this may be an earlier one.
    ended = with_bill(replica, replica.without_secrets(job.model_copy(update=kept)))
    note_end(replica, ended)
    replica.update(lambda record: _with_late_job(record, ended))
    return f"noted: {event.TrainingJobStatus}, of a job whose {_why_over(refused)}"


def _why_over(attempt: Attempt) -> str:
    return "place did not answer" if attempt.was_created else "launch was recorded as refused"


def _with_late_job(record: Record | None, ended: Attempt) -> Record | None:
    if record is None:
        return None
    attempts = tuple(ended if one.attempt == ended.attempt else one for one in record.attempts)
    return record.model_copy(update={"attempts": attempts})


def _is_ours(plane: ControlPlane, replica: ActiveReplica, event: JobStateChange, attempt: Attempt) -> bool:
    """By the event's tags. Where it has none, by the record, and otherwise by the job's: both ask SageMaker rarely.

    Only AWS can send an event with the source `aws.sagemaker`, so it is about the job with this name, in the account
    and region that it states.
    """
    if replica.spec.backend is not Backend.TRAINING_JOB or not _is_from_its_place(plane, replica, event, attempt):
        return False
    if event.Tags:
        return replica.owns(event.Tags, attempt.attempt)
    return attempt.has_proven_job or replica.own_job(attempt) is not None


def _note(replica: ActiveReplica, event: JobStateChange, known: Attempt, seen: Seen) -> str:
    before, noted = seen.record, _with_history(seen.record, event)
    if noted is not None and noted.current.instance_type and before and before.current.instance_type is None:
        # Until now the attempt counted as the dearest of the preferences. Before the record has its type: a later call
        # would find it there, and write no mark.
        note_launch(replica, noted.current)
    updated = replica.update(lambda record: _with_history(record, event), seen)
    after = updated.record
    if after is not None and (now := _recorded(after, known.attempt)) is not None and _is_late(now, after):
        # Its place fell silent, and another call gave the attempt up before this one wrote.
        return _end_late_job(replica, event, now)
    what = f"noted: {event.TrainingJobStatus}/{event.SecondaryStatus}"
    # The job was created while its run was being stopped: perhaps neither Stop nor the launching call found it. Stop
    # finds it where the record had a status of it before: it reads the records after it has raised the fence.
    was_known = updated.before is not None and updated.before.current.has_proven_job
    if event.TrainingJobStatus == JobStatus.IN_PROGRESS and not was_known:
        if replica.run.is_stopping:
            replica.jobs_of(known).stop(event.TrainingJobName)
            what += ", stopped: the run is stopping"
        elif (seats := seat_keeper(replica.run.plan.spec)) is not None:
            seats.let_leave(replica, before.current.attempt if before is not None else 1)
    return what


def _with_history(record: Record | None, event: JobStateChange) -> Record | None:
    """The record, updated by the event. None where it adds nothing, because a newer event was recorded first."""
    if record is None or record.current.job != event.TrainingJobName or record.decision is not None:
        return None
    if _progress(event.history) < _progress(record.current.history):
        return None
    return record.model_copy(update={"attempts": (*record.attempts[:-1], event.seen(record.current))})


def _progress(history: tuple[Transition, ...]) -> tuple[int, str]:
    """Sorts the events of a job: each has the whole history up to the cap, so a shorter one is older."""
    return len(history), history[-1].at if history else ""
