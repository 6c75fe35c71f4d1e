"""What has happened to a run, in the order of time: made of what a client may see, by a pure function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum

from pydantic import Field

from muster.client.jobs import Execution, ExecutionStatus, Job
from muster.client.status import is_failure
from muster.contract.document import Document
from muster.contract.failures import FailureClass
from muster.contract.result import Result


class HappeningKind(StrEnum):
    """What can happen. Those that are events of Muster's bus, too, go by the same words there."""

    RUN_STARTED = "run-started"
    REPLICA_LAUNCHED = "replica-launched"
    REPLICA_ENDED = "replica-ended"
    ROUND_COMMITTED = "round-committed"
    RUN_ENDED = "run-ended"
    RUN_SETTLED = "run-settled"


_ENDED = {
    ExecutionStatus.SUCCEEDED: "has succeeded",
    ExecutionStatus.FAILED: "has failed",
    ExecutionStatus.TIMED_OUT: "has timed out",
    ExecutionStatus.ABORTED: "was stopped",
}


class Happening(Document):
    """One thing that has happened."""

    at: str = Field(description="ISO 8601 in UTC, by the service that told it")
    kind: HappeningKind
    text: str = Field(description="in words")
    rank: int | None = None
    attempt: int | None = None
    job: str | None = None
    round: int | None = None
    failure_class: FailureClass | None = Field(default=None, description="why an attempt did not succeed, where known")


def happenings(
    execution: Execution,
    jobs: Sequence[Job],
    failures: Mapping[str, FailureClass | None],
    rounds: Iterable[tuple[int, datetime]],
    result: Result | None,
) -> list[Happening]:
    """Everything that the arguments tell, oldest first. The rounds before the last snapshot are not told any more."""
    told = [
        *_of_execution(execution),
        *(happening for job in jobs for happening in _of_job(job, failures)),
        *(
            Happening(
                at=_text(at), kind=HappeningKind.ROUND_COMMITTED, round=number, text=f"round {number} is committed"
            )
            for number, at in rounds
        ),
    ]
    if result is not None:
        words = f"{result.verdict}: {result.reason}" if result.reason else str(result.verdict)
        at = _text(datetime.fromisoformat(result.settled_at))
        told.append(Happening(at=at, kind=HappeningKind.RUN_SETTLED, text=f"the run {words}"))
    order = list(HappeningKind)
    return sorted(told, key=lambda item: (datetime.fromisoformat(item.at), order.index(item.kind), item.rank or 0))


def _of_execution(execution: Execution) -> Iterator[Happening]:
    asked = f"{execution.replicas} replicas" if execution.replicas != 1 else "1 replica"
    resumed = f", going on from {execution.parent}" if execution.parent else ""
    started = f"the run is started with {asked}{resumed}"
    yield Happening(at=_text(execution.started_at), kind=HappeningKind.RUN_STARTED, text=started)
    if execution.ended_at is not None:
        cause = ": ".join(part for part in (execution.error, execution.cause) if part)
        words = f"the execution {_ENDED.get(execution.status, 'has ended')}{f': {cause}' if cause else ''}"
        yield Happening(at=_text(execution.ended_at), kind=HappeningKind.RUN_ENDED, text=words)


def _of_job(job: Job, failures: Mapping[str, FailureClass | None]) -> Iterator[Happening]:
    name = job.name
    who = f"replica {name.rank} attempt {name.attempt}"
    if job.created_at is not None:
        yield Happening(
            at=_text(job.created_at),
            kind=HappeningKind.REPLICA_LAUNCHED,
            text=f"{who} is launched",
            rank=name.rank,
            attempt=name.attempt,
            job=str(name),
        )
    if job.has_ended and job.ended_at is not None:
        failure = failures.get(str(name)) if is_failure(job) else None
        words = f"{who} {job.status.lower()}{f': {failure}' if failure else ''}"
        yield Happening(
            at=_text(job.ended_at),
            kind=HappeningKind.REPLICA_ENDED,
            text=words,
            rank=name.rank,
            attempt=name.attempt,
            job=str(name),
            failure_class=failure,
        )


def happening_line(happening: Happening) -> str:
    """One line for people: when, in UTC, and what."""
    return f"{happening.at[:23]}Z  {happening.text}"


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")
