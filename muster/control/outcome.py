"""The end of an attempt, whatever reports it: gather the facts, decide, write the decision, announce it.

The decision is pure (decide.py) and is written once, by compare-and-swap. Its consequences (marks, the task token,
events) are idempotent, and every later call for the same attempt repeats them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.contract.aws.failures import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Decision, Next, Record
from muster.contract.run.waiting import Waiting
from muster.control.active_run import ActiveRun
from muster.control.announcements import announce_rerun
from muster.control.cost_ceiling import note_end, reached_ceiling, with_billed_time
from muster.control.decide import Facts, can_do_without, decide_end
from muster.control.documents import Seen
from muster.control.runtime import clock

if TYPE_CHECKING:
    from muster.control.control_plane import ControlPlane


@dataclass(frozen=True)
class Outcome:
    """The decision about an attempt's end as its workflow gets it. `fresh`: this call made the decision."""

    decision: Decision
    fresh: bool


def end_attempt(
    plane: ControlPlane, run: ActiveRun, rank: int, ended: Attempt, seen: Seen | None = None
) -> Outcome | None:
    """Decide what follows `ended`, the ended attempt of `rank`, and announce it. An earlier decision is kept.

    `seen` is the record, if it was read before. None: another attempt is the current one, and nothing was done.
    """
    ended, facts = _gather(run, rank, ended)
    record, written = run.documents.update_record(rank, lambda record: decide_end(record, ended, facts), seen)
    if record is None or record.current.attempt != ended.attempt or record.decision is None:
        return None
    return announce_end(plane, run, record, record.decision, fresh=written)


def announce_end(
    plane: ControlPlane, run: ActiveRun, record: Record, decided: Decision, *, token: str | None = None, fresh: bool
) -> Outcome:
    """Write the marks for the decision on the current attempt, and complete `token`, by default the record's."""
    _write_marks(run, record, decided)
    decision = _for_workflow(run, decided)
    plane.tokens.complete(token or record.token, run.plan.run, record.rank, decision)
    if fresh and decision.next is Next.RERUN:
        announce_rerun(plane.bus, run, record)
    return Outcome(decision, fresh)


def _gather(run: ActiveRun, rank: int, ended: Attempt) -> tuple[Attempt, Facts]:
    """The attempt, completed by what only SageMaker knows, and the facts for the decision."""
    ended = with_billed_time(run, rank, ended)
    failed = ended.failure_class is not None
    stopping = failed and run.documents.fence() is not None
    if stopping and ended.failure_class is FailureClass.STOPPED_BY_USER:
        # SageMaker does not report who stopped a job.
        ended = ended.model_copy(update={"failure_class": FailureClass.STOPPED_BY_MUSTER})
    ceiling = reached_ceiling(run, (rank, ended)) if failed and not stopping else None
    return ended, Facts(run.plan.spec.of_rank(rank), stopping, ceiling, clock.now())


def _write_marks(run: ActiveRun, record: Record, decided: Decision) -> None:
    """Marks that others find by listing keys: money spent, why a replica without a job waits, lost replicas."""
    current, layout, store = record.current, run.documents.layout, run.documents.store
    note_end(run, record.rank, current)
    if not current.was_created and current.failure_class is not None and decided.next is Next.RERUN:
        store.create(Waiting(record.rank, decided.attempt, current.failure_class).key(layout), b"{}")
    if decided.lost:
        store.create(f"{layout.lost}{record.rank}", b"{}")


def _for_workflow(run: ActiveRun, decided: Decision) -> Decision:
    """The decision, or STOP where the run has lost its quorum with this replica.

    Each lost replica writes its mark before it counts the marks, so of several lost at the same time the last one
    counts all of them.
    """
    if not decided.lost or can_do_without(run.plan.spec, run.documents.store.count(run.documents.layout.lost)):
        return decided
    return decided.model_copy(update={"next": Next.STOP})
