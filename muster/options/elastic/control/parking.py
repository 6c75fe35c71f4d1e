"""Parked seats: their task tokens are kept, and completed once the seat is wanted or the run ends.

The token is stored first, and then the fence and the seats are read again. Who opens a seat, or raises the fence, does
that first and then looks for tokens. So one of the two finds the other. A re-arm repairs what a function left undone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.contract.run.record import Decision, Next, Record
from muster.control.attempt_request import Launch
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import in_parallel
from muster.control.stop import stop_attempt
from muster.options.elastic.contract.seats import ParkedSeat, Seats, parked_key, parked_prefix
from muster.options.elastic.control.decisions import Held, place
from muster.options.elastic.control.seat_documents import elastic_of, lost_ranks, seats_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from muster.control.active_run import ActiveReplica, ActiveRun
    from muster.control.attempt_request import AttemptRequest
    from muster.control.control_plane import ControlPlane


def hold(plane: ControlPlane, replica: ActiveReplica, request: AttemptRequest, record: Record | None) -> Launch | None:
    """Keep the token of an attempt whose seat waits, or complete it; None where the attempt may be launched."""
    run, decided = replica.run, None if record is None else record.decision
    following = decided.attempt if decided is not None and decided.next is Next.RERUN else 1 if record is None else 0
    if request.attempt != following:
        return None  # it was launched, or is not the one that was decided
    seats = seats_of(run)
    found = place(seats, replica.rank, decided, clock.now())
    if isinstance(found, Held):
        _keep(replica, request, found)
        if run.is_stopping:
            found = Decision(next=Next.FAIL, attempt=request.attempt, reason="the run is stopping")
        else:
            seats = seats_of(run)
            found = place(seats, replica.rank, decided, clock.now())
            # The workflow, which may have got another answer by now, asks again.
            found = found or Decision(next=Next.RERUN, attempt=request.attempt, reason="its seat is wanted")
    if isinstance(found, Held) and (reason := _too_few(run, seats, found)) is not None:
        found = Decision(next=Next.STOP, attempt=request.attempt, reason=reason)
    if found is None or isinstance(found, Held):
        return None if found is None else Launch.HELD
    plane.tokens.complete(request.token, request.run, request.rank, found)
    return Launch.EARLY if found.next is Next.RERUN else Launch.REFUSED


def _keep(replica: ActiveReplica, request: AttemptRequest, held: Held) -> None:
    """Store the token, unless a later call has stored one."""
    seat = ParkedSeat(
        run=request.run,
        rank=request.rank,
        attempt=request.attempt,
        token=request.token,
        armed_at=request.armed_at,
        reason=held.reason,
        until=held.until,
    )

    def change(before: ParkedSeat | None) -> ParkedSeat:
        return before if before is not None and before.armed_at > seat.armed_at else seat

    replica.run.documents.store.change(ParkedSeat, parked_key(request.run, request.rank), change)


def _too_few(run: ActiveRun, seats: Seats, held: Held) -> str | None:
    """Why the run stops: too few seats are left, have an instance, or may soon have one. None where it goes on."""
    elastic, now = elastic_of(run.plan.spec), clock.now()
    if held.until is None and not seats.scalings:
        return None  # no seat was closed
    ranks = seats.open_ranks - lost_ranks(run)
    if len(ranks) < elastic.min:
        # A seat was closed while another was lost: neither of the two calls has seen both.
        return f"all seats but {len(ranks):,} are closed or lost; replicas.min is {elastic.min:,}"
    if held.until is None or elastic.below_min == "wait":
        return None
    waiting = sum(seat.until is not None and seat.until > now for seat in _parked(run, ranks))
    left = len(ranks) - waiting
    if left >= elastic.min:
        return None
    return f"elastic.below_min: {left} seats have an instance or may soon have one; {elastic.min} are needed"


def _parked(run: ActiveRun, ranks: Collection[int]) -> list[ParkedSeat]:
    """The seats of `ranks` that were parked; some may have been launched since."""
    store = run.documents.store
    keys = {parked_key(run.plan.run, rank) for rank in ranks}
    kept = [key for key in store.keys(parked_prefix(run.plan.run)) if key in keys]
    found = in_parallel(lambda key: store.document(ParkedSeat, key), kept)
    return [seat for seat in found if seat is not None]


def release(plane: ControlPlane, run: ActiveRun, reason: str) -> None:
    """End all parked seats."""

    def end(seat: ParkedSeat) -> None:
        decision = Decision(next=Next.FAIL, attempt=seat.attempt, reason=reason)
        plane.tokens.complete(seat.token, run.plan.run, seat.rank, decision)

    in_parallel(end, _parked(run, range(run.plan.spec.replicas)))


def wake(plane: ControlPlane, run: ActiveRun, seats: Seats, budget: TimeBudget) -> None:
    """Let the workflows of open seats go on that wait because they were not wanted.

    Raises:
        OutOfTimeError: the budget was spent; a later call does the rest.
    """

    def go_on(seat: ParkedSeat) -> None:
        found = place(seats, seat.rank, None, clock.now())
        decision = found if isinstance(found, Decision) else Decision(next=Next.RERUN, attempt=seat.attempt)
        decision = decision.model_copy(update={"attempt": seat.attempt})
        plane.tokens.complete(seat.token, run.plan.run, seat.rank, decision)

    # Without capacity they look again by themselves.
    in_parallel(go_on, [seat for seat in _parked(run, seats.open_ranks) if seat.until is None], budget)


def leave(replica: ActiveReplica, attempt: int) -> None:
    """Let the current `attempt` of a closed seat leave: its record says so before its job is stopped.

    So the end of the job spends no budget, also where the seat is open again by then.
    """

    def change(record: Record | None) -> Record | None:
        if record is None or record.decision is not None or record.current.attempt != attempt:
            return None
        return record.model_copy(update={"leaves": attempt})

    record = replica.update(change).record
    # Not as it is by then: another attempt may be the current one.
    if record is not None and record.leaves == attempt == record.current.attempt:
        stop_attempt(replica, record)
