"""What has happened to a run, in the order of time: made of what a client may see, by a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pydantic import Field

from muster.client.aws.reported import Execution, ExecutionStatus, Job
from muster.client.runs.run_status import is_failure
from muster.client.runs.timestamps import utc_text
from muster.contract.aws.failures import FailureClass
from muster.contract.document import Document
from muster.contract.run.attempt import Transition
from muster.contract.run.result import Result
from muster.contract.run.waiting import Waiting


class EventKind(StrEnum):
    """What can happen. Those that are events of Muster's bus, too, go by the same words there."""

    RUN_STARTED = "run-started"
    REPLICA_WAITS = "replica-waits"
    REPLICA_LAUNCHED = "replica-launched"
    REPLICA_INTERRUPTED = "replica-interrupted"
    REPLICA_ENDED = "replica-ended"
    ROUND_COMMITTED = "round-committed"
    RUN_ENDED = "run-ended"
    RUN_SETTLED = "run-settled"
    RUN_RERUN = "run-rerun"


_ENDED = {
    ExecutionStatus.SUCCEEDED: "has succeeded",
    ExecutionStatus.FAILED: "has failed",
    ExecutionStatus.TIMED_OUT: "has timed out",
    ExecutionStatus.ABORTED: "was stopped",
}


class EventLogEntry(Document):
    """One thing that has happened."""

    at: str = Field(description="ISO 8601 in UTC, by the service that told it")
    kind: EventKind
    text: str = Field(description="in words")
    rank: int | None = None
    attempt: int | None = None
    job: str | None = None
    round: int | None = None
    failure_class: FailureClass | None = Field(
        default=None, description="why an attempt did not succeed or was refused, where known"
    )


# The secondary statuses of a job whose process is taken from it, in words.
_INTERRUPTIONS = {
    "Interrupted": "is interrupted: its instance is taken",
    "Restarting": "is started again, in the same job",
}


@dataclass(frozen=True)
class Traces:
    """What a run has left where a client may see it."""

    execution: Execution
    jobs: Sequence[Job] = ()
    failures: Mapping[str, FailureClass | None] = field(default_factory=dict)
    """Why each job that is named did not succeed."""
    histories: Mapping[str, Sequence[Transition]] = field(default_factory=dict)
    """The secondary statuses of the jobs that may have been interrupted."""
    waits: Iterable[tuple[Waiting, datetime]] = ()
    rounds: Iterable[tuple[int, datetime]] = ()
    result: Result | None = None
    continued_by: tuple[str, datetime] | None = None
    """The run as which this one goes on, and since when."""


def event_log(traces: Traces) -> list[EventLogEntry]:
    """Everything that `traces` tell, oldest first. The rounds before the last snapshot are not told any more."""
    result = traces.result
    told = [
        *_of_execution(traces.execution),
        *(_of_wait(*wait) for wait in traces.waits),
        *(entry for job in traces.jobs for entry in _of_job(job, traces)),
        *(
            EventLogEntry(
                at=utc_text(at), kind=EventKind.ROUND_COMMITTED, round=number, text=f"round {number} is committed"
            )
            for number, at in traces.rounds
        ),
    ]
    if result is not None:
        words = f"{result.verdict}: {result.reason}" if result.reason else str(result.verdict)
        settled_at = utc_text(datetime.fromisoformat(result.settled_at))
        told.append(EventLogEntry(at=settled_at, kind=EventKind.RUN_SETTLED, text=f"the run {words}"))
    if traces.continued_by is not None:
        continued_by, at = traces.continued_by
        told.append(EventLogEntry(at=utc_text(at), kind=EventKind.RUN_RERUN, text=f"the run goes on as {continued_by}"))
    order = list(EventKind)
    return sorted(told, key=lambda item: (datetime.fromisoformat(item.at), order.index(item.kind), item.rank or 0))


def _of_execution(execution: Execution) -> Iterator[EventLogEntry]:
    asked = f"{execution.replicas} replicas" if execution.replicas != 1 else "1 replica"
    resumed = f", going on from {execution.parent}" if execution.parent else ""
    started = f"the run is started with {asked}{resumed}"
    yield EventLogEntry(at=utc_text(execution.started_at), kind=EventKind.RUN_STARTED, text=started)
    if execution.ended_at is not None:
        cause = ": ".join(part for part in (execution.error, execution.cause) if part)
        words = f"the execution {_ENDED.get(execution.status, 'has ended')}{f': {cause}' if cause else ''}"
        yield EventLogEntry(at=utc_text(execution.ended_at), kind=EventKind.RUN_ENDED, text=words)


def _of_wait(mark: Waiting, at: datetime) -> EventLogEntry:
    return EventLogEntry(
        at=utc_text(at),
        kind=EventKind.REPLICA_WAITS,
        text=f"replica {mark.rank} attempt {mark.attempt} waits for {mark.failure_class}",
        rank=mark.rank,
        attempt=mark.attempt,
        failure_class=mark.failure_class,
    )


def _of_job(job: Job, traces: Traces) -> Iterator[EventLogEntry]:
    name = job.name
    who = f"replica {name.rank} attempt {name.attempt}"

    def entry(kind: EventKind, at: str, words: str, failure: FailureClass | None = None) -> EventLogEntry:
        return EventLogEntry(
            at=at,
            kind=kind,
            text=f"{who} {words}",
            rank=name.rank,
            attempt=name.attempt,
            job=str(name),
            failure_class=failure,
        )

    if job.created_at is not None:
        words = "is launched" if name.attempt == 1 else "is launched: a rerun"
        yield entry(EventKind.REPLICA_LAUNCHED, utc_text(job.created_at), words)
    for step in traces.histories.get(str(name), ()):
        if step.secondary in _INTERRUPTIONS:
            yield entry(EventKind.REPLICA_INTERRUPTED, step.at, _INTERRUPTIONS[step.secondary])
    if job.has_ended and job.ended_at is not None:
        failure = traces.failures.get(str(name)) if is_failure(job) else None
        words = f"{job.status.lower()}{f': {failure}' if failure else ''}"
        yield entry(EventKind.REPLICA_ENDED, utc_text(job.ended_at), words, failure)


def event_line(entry: EventLogEntry) -> str:
    """One line for people: when, in UTC, and what."""
    return f"{entry.at[:23]}Z  {entry.text}"
