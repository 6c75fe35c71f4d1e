"""What the core asks of elastic runs (`muster.control.seat_keeper`). Everything heavy is imported by what uses it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from muster.contract import timestamps
from muster.contract.spec.elastic import SCHEDULED
from muster.control.runtime import clock
from muster.control.seat_keeper import SeatKeeper
from muster.options.elastic.contract.seats import Seats, seats_key

if TYPE_CHECKING:
    from muster.contract.run.attempt import Attempt
    from muster.contract.run.plan import Plan
    from muster.contract.run.record import Decision, Record
    from muster.contract.spec.spec import Spec
    from muster.contract.timestamps import Timestamp
    from muster.control.active_run import ActiveReplica, ActiveRun
    from muster.control.attempt_request import AttemptRequest, Launch
    from muster.control.aws.store import DocumentStore
    from muster.control.aws.timer_schedules import Timers
    from muster.control.control_plane import ControlPlane
    from muster.control.documents import PlannedRun


class ElasticSeats(SeatKeeper):
    """Seats as `Seats` has them."""

    def prepare(self, store: DocumentStore, plan: Plan) -> None:
        """Write the seats of a planned run, once."""
        from muster.options.elastic.control.seat_documents import planned  # noqa: PLC0415

        store.create(seats_key(plan.run), planned(store, plan).to_json())

    def schedule(self, timers: Timers, plan: Plan, function_arn: str) -> None:
        """One timer for each step of `elastic.scale`, from now on: the run may have waited in the run queue."""
        launched_at = clock.utc_now()
        for number, step in enumerate(() if plan.spec.elastic is None else plan.spec.elastic.scale):
            name, by = f"{plan.run}-scale-{number}", f"{SCHEDULED}{number}"
            due = timestamps.text(launched_at + timedelta(seconds=step.after_seconds))
            timers.call(name, step.after_seconds, function_arn, run=plan.run, replicas=step.replicas, by=by, time=due)

    def hold(
        self, plane: ControlPlane, replica: ActiveReplica, request: AttemptRequest, record: Record | None
    ) -> Launch | None:
        """Keep the token of an attempt whose seat waits."""
        from muster.options.elastic.control.parking import hold  # noqa: PLC0415

        return hold(plane, replica, request, record)

    def is_closed(self, replica: ActiveReplica) -> bool:
        """Whether the replica's seat is not wanted now."""
        return replica.rank not in _seats(replica.run).open_ranks

    def let_leave(self, replica: ActiveReplica, attempt: int) -> None:
        """Stop the job of `attempt` if its seat is closed."""
        from muster.options.elastic.control.parking import leave  # noqa: PLC0415

        if self.is_closed(replica):
            leave(replica, attempt)

    def parks(self, spec: Spec, attempts: tuple[Attempt, ...], now: Timestamp) -> Decision | None:
        """What follows an end, where no budget decides that."""
        from muster.options.elastic.control.decisions import parked_after  # noqa: PLC0415

        return parked_after(spec, attempts, now)

    def missing(self, run: ActiveRun) -> int:
        """How many seats are closed or lost."""
        from muster.options.elastic.control.seat_documents import lost_ranks  # noqa: PLC0415

        return run.plan.spec.replicas - len(_seats(run).open_ranks - lost_ranks(run))

    def end(self, plane: ControlPlane, run: ActiveRun, rank: int) -> None:
        """Open no seat any more; of all replicas that end, one call, and its retries, ends the parked seats."""
        from muster.options.elastic.control.parking import release  # noqa: PLC0415
        from muster.options.elastic.control.seat_documents import first_seats  # noqa: PLC0415

        reason = f"replica {rank} has trained to the end"

        def change(before: Seats | None) -> Seats:
            return (before or first_seats(run)).ended_by(reason)

        if run.documents.store.change(Seats, seats_key(run.plan.run), change).ended == reason:
            release(plane, run, reason)

    def release(self, plane: ControlPlane, run: ActiveRun, reason: str) -> None:
        """End the parked seats."""
        from muster.options.elastic.control.parking import release  # noqa: PLC0415

        release(plane, run, reason)

    def parked(self, run: PlannedRun) -> set[int]:
        """The closed ranks, and those that were opened too late."""
        seats = _seats(run)
        late = {rank for rank in seats.open_ranks if seats.ended is not None and seats.opening(rank) is not None}
        return set(range(run.plan.spec.replicas)) - seats.open_ranks | late


def _seats(run: PlannedRun) -> Seats:
    from muster.options.elastic.control.seat_documents import seats_of  # noqa: PLC0415

    return seats_of(run)


OFFER = ElasticSeats()
