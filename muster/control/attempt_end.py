"""The end of an attempt, whatever reports it: gather the facts, decide, write the decision, deliver it.

An event of its job reports it, a look at the job, or a launch that was refused. (A replica that is given up ends in
`launch_failure`, a job that comes late in `react`.) The decision is pure (`rerun_decision`) and is written once, by
compare-and-swap, with the end. What follows from it for the run (entry, marks, seats, task token) is idempotent, and
every later call for the same attempt repeats it: Lambda's retries, the workflow's next arming. Metrics and events are
sent only by the call that wrote the decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Decision, Next, Record
from muster.control.active_run import ActiveReplica, ActiveRun
from muster.control.cost_ceiling import note_end, note_reached, reached_ceiling_with, with_bill
from muster.control.described_job import with_details
from muster.control.documents import Seen
from muster.control.reporting.announcements import announce_parked, announce_rerun
from muster.control.rerun_decision import Facts, can_do_without, decide_end
from muster.control.runtime import clock
from muster.control.runtime.function import count
from muster.control.seat_keeper import seat_keeper

if TYPE_CHECKING:
    from muster.control.control_plane import ControlPlane


@dataclass(frozen=True)
class Outcome:
    """The decision about an attempt's end as its workflow gets it. `fresh`: this call made the decision."""

    decision: Decision
    fresh: bool


def end_attempt(
    plane: ControlPlane,
    replica: ActiveReplica,
    ended: Attempt,
    seen: Seen | None = None,
    refused_at: str | None = None,
) -> Outcome | None:
    """Decide what follows `ended`, the ended attempt of `replica`, and deliver it. An earlier decision is kept.

    The caller has shown that the job is the run's: its name alone proves nothing.

    `seen` is the record, if it was read before. `refused_at` is the `armed_at` of a call whose launch was refused: a
    call that has armed the attempt since may have created its job, and a refusal says nothing about that one. None:
    another attempt, or such a call, is the current one, and nothing was done.
    """

    def change(record: Record | None) -> Record | None:
        if refused_at is not None and record is not None and record.armed_at > refused_at:
            return None
        return decide_end(record, ended, facts)

    if seen is not None and seen.record is not None and seen.record.decision is not None:
        # A repeated event: the decision stands, and no fact is needed again.
        if seen.record.current.attempt != ended.attempt:
            return None
        replica.write_entry(seen.record)
        return deliver_end(plane, replica, seen.record)
    ended, facts = _gather(replica, ended)
    updated = replica.write_record(change, seen)
    record, written = updated.record, updated.written
    if record is None:
        return None
    if written and record.decision is not None:
        # Before all that may fail: a later call finds the decision, and neither counts nor announces it. The metric of
        # reruns is counted with their announcement.
        if record.decision.next is Next.DONE:
            count("ReplicaSucceeded")
        elif record.decision.lost:
            count("ReplicaLost")
        if record.decision.parked:
            announce_parked(plane.bus, record)
        elif record.decision.next is Next.RERUN:
            announce_rerun(plane.bus, record, job_prefix=plane.settings.job_prefix)
    replica.write_entry(record)
    if record.current.attempt != ended.attempt or record.decision is None:
        return None
    return replace(deliver_end(plane, replica, record), fresh=written)


def deliver_end(plane: ControlPlane, replica: ActiveReplica, record: Record, token: str | None = None) -> Outcome:
    """Write the marks for the decision in `record`, and complete the task of `token`, by default the record's.

    Done and fail are the task's output, rerun and stop errors that the workflow catches.

    Raises:
        ValueError: the record holds no decision.
    """
    if record.decision is None:
        message = f"the record of replica {record.rank} holds no decision"
        raise ValueError(message)
    _write_marks(replica, record.current, record.decision)
    seats = seat_keeper(replica.run.plan.spec) if record.decision.next is Next.DONE else None
    if seats is not None:
        seats.end(plane, replica.run, replica.rank)
    decision = for_workflow(replica.run, record.decision)
    plane.tokens.complete(token or record.token, record.run, record.rank, decision)
    return Outcome(decision, fresh=False)


def _gather(replica: ActiveReplica, ended: Attempt) -> tuple[Attempt, Facts]:
    """The attempt, completed by what only SageMaker knows, and the facts for the decision."""
    ended = with_details(replica, with_bill(replica, ended))
    failed = ended.failure_class is not None
    stopping = failed and replica.run.is_stopping  # a fence is raised
    if stopping and ended.failure_class is FailureClass.STOPPED_BY_USER:
        # SageMaker does not report who stopped a job.
        ended = ended.model_copy(update={"failure_class": FailureClass.STOPPED_BY_MUSTER})
    ceiling = reached_ceiling_with(replica, ended) if failed and not stopping else None
    seats = seat_keeper(replica.run.plan.spec)
    closed = seats is not None and failed and not stopping and seats.is_closed(replica)
    parks = None if seats is None else seats.parks
    return ended, Facts(replica.spec, stopping, ceiling, clock.now(), parks, closed=closed)


def _write_marks(replica: ActiveReplica, ended: Attempt, decided: Decision) -> None:
    """Marks that others find by listing keys: money spent, lost replicas."""
    note_end(replica, ended)
    mark_loss(replica, decided)


def mark_loss(replica: ActiveReplica, decided: Decision) -> None:
    """Write the marks of a lost replica, where the decision says that it is."""
    documents = replica.run.documents
    if decided.at_ceiling:
        note_reached(replica.run)
    if decided.lost:
        documents.store.create(f"{documents.layout.lost}{replica.rank}", b"{}")


def for_workflow(run: ActiveRun, decided: Decision) -> Decision:
    """The decision, or STOP where the run cannot do without this replica.

    So it is by default (`on_replica_failure: terminate`), without a quorum, and where a rule of `watch` stops the run.

    Of an elastic run, the seats that are not wanted count as those that were lost do.

    Each lost replica writes its mark before it counts the marks, so of several lost at the same time the last one
    counts all of them.
    """
    if not decided.lost:
        return decided
    seats = seat_keeper(run.plan.spec)
    missing = run.documents.store.count(run.documents.layout.lost) if seats is None else seats.missing(run)
    if not decided.stops_run and can_do_without(run.plan.spec, missing):
        return decided
    return decided.model_copy(update={"next": Next.STOP})
