"""The event log of a run, in order of time: a pure function of what a client may read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import Field

from muster.client.aws.reported import Execution, ExecutionStatus
from muster.client.runs.run_status import has_ended, is_failure
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.job_status import WAITING_FOR_QUOTA
from muster.contract.document import Document
from muster.contract.run.attempt import Attempt
from muster.contract.run.failure_words import failure_words
from muster.contract.run.finding import Finding
from muster.contract.run.job_details import JobDetails, PoolState
from muster.contract.run.record import Decision, Next
from muster.contract.run.result import Result
from muster.contract.run.run_cost import saving
from muster.contract.run.seat_states import SeatChange, SeatsView
from muster.contract.spec.elastic import SCHEDULED
from muster.contract.timestamps import Timestamp
from muster.report.seat_words import change_text


class EventKind(StrEnum):
    """The kinds of events. Those that Muster also puts on its bus have the same names there."""

    RUN_STARTED = "run-started"
    REPLICA_WAITS = "replica-waits"
    REPLICA_LAUNCHED = "replica-launched"
    REPLICA_REPORTED = "replica-reported"
    REPLICA_INTERRUPTED = "replica-interrupted"
    REPLICA_SCALED = "replica-scaled"
    REPLICA_ENDED = "replica-ended"
    REPLICA_PARKED = "replica-parked"
    RUN_SCALED = "run-scaled"
    ROUND_COMMITTED = "round-committed"
    RULE_MET = "rule-met"
    RULE_EVALUATED = "rule-evaluated"
    RUN_ENDED = "run-ended"
    RUN_SETTLED = "run-settled"
    RUN_CONTINUED = "run-continued"


_ENDED = {
    ExecutionStatus.SUCCEEDED: "succeeded",
    ExecutionStatus.FAILED: "failed",
    ExecutionStatus.TIMED_OUT: "timed out",
    ExecutionStatus.ABORTED: "was stopped",
}


class EventLogEntry(Document):
    """One event of a run."""

    at: Timestamp = Field(description="ISO 8601 in UTC, as the service reported it")
    kind: EventKind
    text: str = Field(description="in words")
    rank: int | None = None
    attempt: int | None = None
    job: str | None = None
    round: int | None = None
    failure_class: FailureClass | None = Field(
        default=None, description="why an attempt did not succeed or was refused, when known"
    )


_ENDS = {"Completed", "Failed", "Stopped", "MaxRuntimeExceeded", "MaxWaitTimeExceeded"}
# The secondary statuses of an interrupted job, in words.
_INTERRUPTIONS = {
    "Interrupted": "was interrupted: SageMaker took the instance back",
    "Restarting": "restarts in the same job",
}


@dataclass(frozen=True)
class Traces:
    """The data of a run that a client may read."""

    execution: Execution
    attempts: Mapping[int, Sequence[Attempt]] = field(default_factory=dict)
    """The attempts of each replica."""
    decisions: Mapping[int, Decision | None] = field(default_factory=dict)
    """What follows each replica's latest attempt."""
    rounds: Iterable[tuple[int, datetime]] = ()
    findings: Iterable[tuple[Finding, datetime]] = ()
    result: Result | None = None
    seats: SeatsView | None = None
    """Of an elastic run."""
    continued_by: tuple[str, datetime] | None = None
    """The run that continues this one, and since when."""


def event_log(traces: Traces) -> list[EventLogEntry]:
    """The events that `traces` show, oldest first. Rounds before the last snapshot are no longer known."""
    entries = [
        *_of_execution(traces.execution),
        *(entry for rank, attempts in traces.attempts.items() for entry in _of_replica(rank, attempts, traces)),
        *(_entry(EventKind.ROUND_COMMITTED, at, f"round {one} was committed", round=one) for one, at in traces.rounds),
        *(_of_change(change) for change in (traces.seats.changes if traces.seats is not None else ())),
        *(
            _entry(EventKind.RULE_MET, at, found.words, rank=found.rank, attempt=found.attempt, round=found.round)
            for found, at in traces.findings
        ),
        *_of_end(traces),
    ]
    order = list(EventKind)
    return sorted(entries, key=lambda item: (timestamps.parse(item.at), order.index(item.kind), item.rank or 0))


def _entry(kind: EventKind, at: datetime | Timestamp, text: str, **about: Any) -> EventLogEntry:
    """An event; `about` are the other fields of its entry."""
    return EventLogEntry(kind=kind, at=timestamps.text(at) if isinstance(at, datetime) else at, text=text, **about)


def _of_execution(execution: Execution) -> Iterator[EventLogEntry]:
    count = execution.replicas if execution.seats is None else execution.seats.start
    replicas = f"{count} replicas" if count != 1 else "1 replica"
    resumed = f", continuing {execution.parent}" if execution.parent else ""
    yield _entry(EventKind.RUN_STARTED, execution.started_at, f"the run started with {replicas}{resumed}")
    if execution.ended_at is not None:
        words = f"the execution {_ENDED.get(execution.status, 'ended')}{f': {execution.end}' if execution.end else ''}"
        yield _entry(EventKind.RUN_ENDED, execution.ended_at, words)


def _of_change(change: SeatChange) -> EventLogEntry:
    whose = "by its schedule" if change.by.startswith(SCHEDULED) else f"by event {change.by}"
    return _entry(EventKind.RUN_SCALED, change.at, f"{change_text(change)} ({whose})")


def _of_end(traces: Traces) -> Iterator[EventLogEntry]:
    result = traces.result
    if result is not None:
        words = f"{result.verdict}: {result.reason}" if result.reason else str(result.verdict)
        yield _entry(EventKind.RUN_SETTLED, timestamps.parse(result.settled_at), f"the run {words}")
    if traces.continued_by is not None:
        continued_by, since = traces.continued_by
        yield _entry(EventKind.RUN_CONTINUED, since, f"the run is continued by {continued_by}")


def _of_replica(rank: int, attempts: Sequence[Attempt], traces: Traces) -> Iterator[EventLogEntry]:
    decision = traces.decisions.get(rank)
    is_rerun = decision is not None and decision.next is Next.RERUN
    for attempt in attempts:
        if attempt.was_created:
            yield from _of_job(rank, attempt)
        elif attempt.ended_at is not None and attempt.failure_class and (attempt != attempts[-1] or is_rerun):
            following, failure = attempt.attempt + 1, attempt.failure_class
            text = f"replica {rank} attempt {following} waits for {failure}"
            about = {"rank": rank, "attempt": following, "failure_class": failure}
            yield _entry(EventKind.REPLICA_WAITS, attempt.ended_at, text, **about)
        if traces.seats is not None and attempt.ended_at is not None:
            known = decision if attempt is attempts[-1] else None
            if known.parked if known is not None else attempt.failure_class is FailureClass.STOPPED_BY_MUSTER:
                why = f": {known.reason.rstrip('.')}" if known is not None and known.reason else ""
                text = f"replica {rank} is parked{why}"
                yield _entry(EventKind.REPLICA_PARKED, attempt.ended_at, text, rank=rank, attempt=attempt.attempt)


def _of_job(rank: int, attempt: Attempt) -> Iterator[EventLogEntry]:
    number = attempt.attempt

    def entry(kind: EventKind, at: Timestamp, words: str, failure: FailureClass | None = None) -> EventLogEntry:
        text = f"replica {rank} attempt {number} {words}"
        return _entry(kind, at, text, rank=rank, attempt=number, job=attempt.job, failure_class=failure)

    # Before a status is reported the job may not exist.
    if attempt.launched_at is not None and attempt.has_proven_job:
        place = "" if attempt.cluster is None else f" on {attempt.cluster.cluster}"
        place = place if attempt.where is None else f" {attempt.where.words}"
        words = f"was launched{place}" if number == 1 else f"was launched{place}: a rerun"
        yield entry(EventKind.REPLICA_LAUNCHED, attempt.launched_at, words)
    yield from (entry(*event) for event in _on_cluster(attempt))
    for step in attempt.history if attempt.cluster is None else ():
        if step.secondary in _INTERRUPTIONS:
            yield entry(EventKind.REPLICA_INTERRUPTED, step.at, _INTERRUPTIONS[step.secondary])
        elif step.message and step.secondary not in _ENDS:
            yield entry(EventKind.REPLICA_REPORTED, step.at, f"is {step.secondary}: {step.message}")
    for at, words in _rules(attempt.details) if attempt.details is not None else ():
        yield entry(EventKind.RULE_EVALUATED, at, words)
    if has_ended(attempt) and attempt.ended_at is not None:
        failure = attempt.failure_class if is_failure(attempt) else None
        why = ": ".join(part for part in (failure, failure_words(attempt).rstrip(".") if failure else "") if part)
        words = f"{attempt.status.lower()}{f': {why}' if why else ''}{_bill(attempt)}"
        yield entry(EventKind.REPLICA_ENDED, attempt.ended_at, words, failure)


def _on_cluster(attempt: Attempt) -> Iterator[tuple[EventKind, Timestamp, str]]:
    """What happened to a job on a cluster between its launch and its end."""
    instances = None
    for step in attempt.history if attempt.cluster is not None else ():
        said = f": {step.message}" if step.message else ""
        is_scaled = step.instances not in {None, instances} and instances is not None
        instances = instances if step.instances is None else step.instances
        if step.secondary == "Restarting":
            yield EventKind.REPLICA_INTERRUPTED, step.at, f"is restarted by the operator{said}"
        elif step.secondary == WAITING_FOR_QUOTA:
            queue = attempt.cluster.queue if attempt.cluster else None
            yield EventKind.REPLICA_WAITS, step.at, f"waits for quota{f' in queue {queue}' if queue else ''}{said}"
        elif is_scaled:
            words = f"trains on {instances} instance{'' if instances == 1 else 's'}"
            yield EventKind.REPLICA_SCALED, step.at, words
        elif step.message and step.secondary not in _ENDS:
            yield EventKind.REPLICA_REPORTED, step.at, f"is {step.secondary}{said}"


def _rules(details: JobDetails) -> Iterator[tuple[Timestamp, str]]:
    """The verdicts of the rules that SageMaker evaluated, each with its time."""
    for rule in details.rules:
        if rule.at is not None:
            yield rule.at, f"{rule.tool} rule {rule.rule}: {rule.status}{f': {rule.words}' if rule.words else ''}"


def _bill(attempt: Attempt) -> str:
    """What is billed of an attempt, where that is not its training time; and until when its instances are kept."""
    details = attempt.details
    if details is None:
        return ""
    saved, pool = saving([attempt], {}), details.warm_pool
    words = "" if saved is None else f"; {saved.billable_seconds:,} s billed of {saved.training_seconds:,} s"
    if pool is not None and pool.state is PoolState.AVAILABLE and pool.until is not None:
        words += f"; its instances are kept until {pool.until} and billed"
    return words
