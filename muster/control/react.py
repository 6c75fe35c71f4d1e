"""React: what a SageMaker job-state-change event means for the replica that it belongs to.

Events may come twice, late, out of order or not at all. Only the job's name is trusted, and only once its tags have
shown that the job is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)

from muster.contract import names
from muster.contract.aws.failures import JobEnd
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import JobName
from muster.contract.run.record import Decision, Record, Transition
from muster.control.active_run import ActiveRun
from muster.control.announcements import tell_of_conclusion
from muster.control.aws.bus import Bus
from muster.control.aws.tokens import Tokens
from muster.control.documents import Seen
from muster.control.outcome import End, conclude
from muster.control.runtime import clock

_TERMINAL = {status.value for status in JobStatus if status.is_terminal}
_HISTORY_MAX = 200  # of one attempt: an instance that is interrupted without end must not grow the record without end


def _or_default(default: Any) -> WrapValidator:
    """A field that is of use but not needed: what cannot be read counts as missing, and the event still counts."""

    def read(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            return default

    return WrapValidator(read)


class _StatusTransition(BaseModel):
    model_config = ConfigDict(extra="ignore")

    Status: str = ""
    StartTime: float = 0


class _Artifacts(BaseModel):
    model_config = ConfigDict(extra="ignore")

    S3ModelArtifacts: str | None = None


class JobStateChange(BaseModel):
    """The detail of the event, as far as Muster reads it. Unknown statuses are kept, never refused."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    TrainingJobName: Annotated[str, Field(min_length=1, max_length=names.JOB_NAME_MAX)]
    TrainingJobArn: Annotated[str, Field(max_length=2_048), _or_default("")] = ""
    TrainingJobStatus: Annotated[str, Field(min_length=1, max_length=64)]
    SecondaryStatus: Annotated[str, Field(max_length=64), _or_default("")] = ""
    SecondaryStatusTransitions: Annotated[tuple[_StatusTransition, ...], _or_default(())] = ()
    FailureReason: Annotated[str | None, _or_default(None)] = None
    LastModifiedTime: Annotated[float, _or_default(0.0)] = 0.0
    ModelArtifacts: Annotated[_Artifacts | None, _or_default(None)] = None
    Tags: Annotated[dict[str, str], _or_default({})] = Field(default_factory=dict)

    @field_validator("Tags", mode="before")
    @classmethod
    def _tags(cls, value: Any) -> Any:
        # The documentation shows {}, the schema a list of {Key, Value}.
        if isinstance(value, list):
            return {str(tag.get("Key")): str(tag.get("Value")) for tag in value if isinstance(tag, dict)}
        return value or {}


@dataclass(frozen=True)
class Reaction:
    """What was done about an event, in a few words for the log. `decision` is there when it was made just now."""

    what: str
    name: JobName | None = None
    decision: Decision | None = None


def react(
    event: JobStateChange, prefix: str, find_run: Callable[[str], ActiveRun | None], tokens: Tokens, bus: Bus
) -> Reaction:
    """Record the change; at the attempt's end decide and tell the workflow."""
    name = JobName.parse(event.TrainingJobName, prefix)
    if name is None:
        return Reaction("dropped: not a name of ours")
    run = find_run(name.run)
    seen = run.documents.record(name.rank) if run else None
    if run is None or seen is None or seen.record is None:
        return Reaction("dropped: no such replica", name)
    if seen.record.current.attempt != name.attempt:
        return Reaction(f"dropped: attempt {name.attempt} is not the current one", name)
    if not _is_ours(run, event, name, proven=bool(seen.record.current.status)):
        return Reaction("dropped: the job is not ours", name)
    if event.TrainingJobStatus in _TERMINAL:
        return _end(run, tokens, bus, event, name=name, seen=seen)
    return _note(run, event, name, seen)


def _is_ours(run: ActiveRun, event: JobStateChange, name: JobName, *, proven: bool) -> bool:
    """By the event's tags, or by the job's where it brings none. A status in the record is proof of an earlier look."""
    if event.Tags or (proven and event.TrainingJobStatus not in _TERMINAL):
        return not event.Tags or run.owns(event.Tags, name.rank, name.attempt)
    job = run.jobs.find(event.TrainingJobName)
    return job is not None and run.owns(run.jobs.tags(job.arn), name.rank, name.attempt)


def _note(run: ActiveRun, event: JobStateChange, name: JobName, seen: Seen) -> Reaction:
    run.documents.update_record(name.rank, lambda record: _with_history(record, event, name), seen)
    what = f"noted: {event.TrainingJobStatus}/{event.SecondaryStatus}"
    # A job that was born while its run was being stopped: neither Stop nor its own launcher may have seen it.
    if event.TrainingJobStatus == JobStatus.IN_PROGRESS and run.documents.fence() is not None:
        run.jobs.stop(event.TrainingJobName)
        what += ", stopped: the run is stopping"
    return Reaction(what, name)


def _with_history(record: Record | None, event: JobStateChange, name: JobName) -> Record | None:
    """The record with what the event adds. None: it adds nothing, because something newer was here."""
    if record is None or record.current.attempt != name.attempt or record.decision is not None:
        return None
    history = _history(event)
    # SageMaker repeats the whole history in every event: a shorter one is older.
    if len(history) < len(record.current.history):
        return None
    current = record.current.model_copy(
        update={"status": event.TrainingJobStatus, "secondary": event.SecondaryStatus, "history": history}
    )
    return record.model_copy(update={"attempts": (*record.attempts[:-1], current)})


def _history(event: JobStateChange) -> tuple[Transition, ...]:
    return tuple(
        Transition(at=clock.from_epoch_milliseconds(transition.StartTime), secondary=transition.Status)
        for transition in event.SecondaryStatusTransitions[-_HISTORY_MAX:]
    )


def _end(run: ActiveRun, tokens: Tokens, bus: Bus, event: JobStateChange, *, name: JobName, seen: Seen) -> Reaction:
    job_end = JobEnd(JobStatus(event.TrainingJobStatus), event.SecondaryStatus, event.FailureReason or "")
    at = clock.from_epoch_milliseconds(event.LastModifiedTime) if event.LastModifiedTime else clock.now()
    artifacts = event.ModelArtifacts.S3ModelArtifacts if event.ModelArtifacts else None
    end = End.of_job(job_end, at, artifacts, _history(event))
    concluded = conclude(run, name.rank, name.attempt, end, seen)
    if concluded is None:
        return Reaction("dropped: a newer attempt is at work", name)
    tokens.complete(concluded.token, name.run, name.rank, concluded.decision)
    tell_of_conclusion(bus, run, concluded)
    if not concluded.fresh:
        return Reaction("told again: it was concluded before", name)
    return Reaction("concluded", name, concluded.decision)
