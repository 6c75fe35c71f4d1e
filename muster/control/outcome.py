"""Writing the end of an attempt into its record. Used by whoever learns of the end first."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from muster.contract.aws.failures import FailureClass, JobEnd, classify_end, explained
from muster.contract.run.record import NOT_CREATED, Attempt, Decision, Next, Record, Transition
from muster.contract.run.waiting import Waiting
from muster.control.active_run import ActiveRun
from muster.control.cost_ceiling import note_end, spent_ceiling
from muster.control.decide import Lost, ends_within_hour, judge, weigh_loss
from muster.control.documents import Seen
from muster.control.runtime import clock

_REASON_MAX = 1_024  # FailureReason has at most 1,024 characters


@dataclass(frozen=True)
class End:
    """How an attempt ended. Classless: it succeeded."""

    failure_class: FailureClass | None
    reason: str
    status: str
    secondary: str
    at: str = field(default_factory=clock.now)
    artifacts: str | None = None
    history: tuple[Transition, ...] = ()

    @classmethod
    def of_job(cls, end: JobEnd, at: str, artifacts: str | None, history: tuple[Transition, ...] = ()) -> End:
        """The end that SageMaker reports of a job."""
        return cls(classify_end(end), explained(end), end.status, end.secondary, at, artifacts, history)


@dataclass(frozen=True)
class Conclusion:
    """What follows, and who is to be told. Not fresh: it had been decided before, and is only told again.

    `ends_within_hour` counts the attempts of the replica that ended within an hour, this one included.
    """

    rank: int
    attempt: int
    end: End
    decision: Decision
    token: str
    fresh: bool
    ends_within_hour: int


def conclude(run: ActiveRun, rank: int, attempt: int, end: End, seen: Seen | None = None) -> Conclusion | None:
    """Decide what follows the end of `attempt`, and remember it; the caller tells the workflow.

    What was decided before stands. None: the attempt is not the replica's current one, and nothing was done.
    """
    fresh = False
    if end.failure_class is FailureClass.STOPPED_BY_USER and run.documents.fence() is not None:
        end = replace(end, failure_class=FailureClass.STOPPED_BY_MUSTER)

    def change(record: Record | None) -> Record | None:
        nonlocal fresh
        fresh = record is not None and record.current.attempt == attempt and record.decision is None
        if record is None or not fresh:
            return None
        attempts = (*record.attempts[:-1], _ended(record.current, end))
        return record.model_copy(update={"attempts": attempts, "decision": _decide(run, rank, attempts, end)})

    record = run.documents.update_record(rank, change, seen)
    if record is None or record.current.attempt != attempt or record.decision is None:
        return None
    _mark_as_waiting(run, rank, end, record.decision)
    return Conclusion(rank, attempt, end, record.decision, record.token, fresh, ends_within_hour(record.attempts))


def _mark_as_waiting(run: ActiveRun, rank: int, end: End, decision: Decision) -> None:
    """Let clients see what a replica waits for that has no job to show it."""
    if end.secondary == NOT_CREATED and end.failure_class is not None and decision.next is Next.RERUN:
        mark = Waiting(rank, decision.attempt, end.failure_class)
        run.documents.store.create(mark.key(run.documents.layout), b"{}")


def _ended(attempt: Attempt, end: End) -> Attempt:
    return attempt.model_copy(
        update={
            "ended_at": end.at,
            "status": end.status,
            "secondary": end.secondary,
            "failure_class": end.failure_class,
            "reason": end.reason,
            "artifacts": end.artifacts,
            "history": max(attempt.history, end.history, key=len),
        }
    )


def _decide(run: ActiveRun, rank: int, attempts: tuple[Attempt, ...], end: End) -> Decision:
    """Asked again whenever the record's swap was lost: everything it does may be done twice."""
    spec = run.plan.spec
    stopping = end.failure_class is not None and run.documents.fence() is not None
    note_end(run, rank, attempts[-1].attempt)
    judgement = judge(spec.of_rank(rank), attempts, end.failure_class, stopping=stopping)
    if isinstance(judgement, Decision) and judgement.next is Next.RERUN and (ceiling := spent_ceiling(run)):
        judgement = Lost(ceiling)
    if isinstance(judgement, Lost):
        lost = Lost(f"replica {rank} was lost: {judgement.reason}: {end.reason}".rstrip(": ")[:_REASON_MAX])
        judgement = weigh_loss(spec, attempts[-1].attempt, lost, _count_lost(run, rank))
    return judgement.model_copy(update={"decided_at": clock.now()})


def _count_lost(run: ActiveRun, rank: int) -> int:
    """Leave a mark for this replica, then count: of replicas lost at the same moment, the last one sees all marks."""
    lost = run.documents.layout.lost
    run.documents.store.create(f"{lost}{rank}", b"{}")
    return run.documents.store.count(lost)
