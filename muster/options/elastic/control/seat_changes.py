"""Scale: a run gets another number of replicas.

The seats are changed first, by compare-and-swap. What follows from them can be done again, and twice: workflows of open
seats that wait go on, and jobs of closed seats are stopped. A repeated request does only that, or is refused again, and
one that comes later than a newer one is refused: EventBridge and Lambda may deliver late, twice and in another order.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Self, TypeGuard

from pydantic import Field, JsonValue

from muster.contract import timestamps
from muster.contract.errors import MusterError, Problem
from muster.contract.names import run_name
from muster.contract.run.record import Record
from muster.contract.run.run_events import TEXT_MAX, RunScaled, ScaleRefused
from muster.contract.spec.elastic import Elastic, scale_problems
from muster.contract.timestamps import Timestamp
from muster.contract.training.ranks import show_ranks
from muster.control.active_run import ActiveReplica, ActiveRun
from muster.control.control_plane import ControlPlane
from muster.control.cost_ceiling import reached_ceiling
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import RunRequest
from muster.control.runtime.parallel import in_another_order, in_parallel
from muster.options.elastic.contract.seats import Refusal, Scaling, Seats, opened, seats_key
from muster.options.elastic.control.decisions import leavers, paid_seats
from muster.options.elastic.control.parking import leave, wake
from muster.options.elastic.control.seat_documents import elastic_of, first_seats, lost_ranks, seats_of

_NO_RUN = "-"  # no run has such a name


class ScaleRequest(RunRequest):
    """How many replicas a run is to have, and who asks: an event of the bus, or a one-time schedule."""

    replicas: JsonValue
    """As the event has it, which may be no number: then it is refused."""
    by: Annotated[str, Field(min_length=1, max_length=256)]
    time: str | None = None
    """When it was made, as EventBridge says, in whole seconds; of a schedule, when it is due. None: it is not known."""

    @classmethod
    def of(cls, event: Mapping[str, object]) -> Self:
        """The request of what calls the function."""
        if "detail" not in event:
            return cls.model_validate(event)
        detail = event["detail"]
        given = detail if isinstance(detail, Mapping) else {}
        name = given.get("run")
        run = run_name(name) if isinstance(name, str) and name else _NO_RUN  # an execution's may be longer
        known = {"by": event.get("id"), "time": event.get("time")}
        return cls.model_validate({"run": run, "replicas": given.get("replicas"), **known})

    @property
    def made_at(self) -> Timestamp:
        """The second in which it was made: none that is still to come, whatever its sender says."""
        now = clock.utc_now()
        made = now if self.time is None else min(timestamps.parse(self.time), now)
        return timestamps.text(made.replace(microsecond=0))


class ScaleRefusedError(MusterError):
    """Nothing was changed."""


def scale(plane: ControlPlane, request: ScaleRequest, per_second: int, budget: TimeBudget) -> str:
    """Let a run have `request.replicas` replicas; what was done, in words. `per_second`: how many are launched.

    Raises:
        OutOfTimeError: the seats are changed, and the budget was too short for what follows; a later call does it.
        Exception: the first error of a replica, after all that follows was tried.
    """
    run: ActiveRun | None = None
    try:
        run = _elastic_run(plane, request)
        scaling = _scaled(run, request, per_second)
    except ScaleRefusedError as refused:
        return f"refused: {_refuse(plane, run, request, str(refused)[:TEXT_MAX])}"
    if scaling is not None:
        plane.bus.emit(
            RunScaled(
                at=scaling.at,
                run=request.run,
                revision=scaling.revision,
                replicas=scaling.replicas,
                before=scaling.before,
                opened=scaling.opened,
                closed=scaling.closed,
                by=scaling.by,
            )
        )
    _follow(plane, run, budget)
    return "scaled" if scaling is not None else "as many as were wanted"


def _refuse(plane: ControlPlane, run: ActiveRun | None, request: ScaleRequest, reason: str) -> str:
    """Tell the reason where the client that waits finds it, if the run is elastic, and on the bus."""
    if run is not None:
        refusal, first = Refusal(by=request.by, reason=reason), first_seats(run)
        run.documents.store.change(Seats, seats_key(request.run), lambda before: (before or first).refused(refusal))
    replicas = request.replicas if _is_whole(request.replicas) else None
    plane.bus.emit(ScaleRefused(at=clock.now(), run=request.run, replicas=replicas, by=request.by, reason=reason))
    return reason


def _elastic_run(plane: ControlPlane, request: ScaleRequest) -> ActiveRun:
    run = plane.runs.find(request.run)
    if run is None:
        is_named = request.run != _NO_RUN
        message = "there is no such run" if is_named else "detail.run is missing or no text: write the run's name"
        raise ScaleRefusedError(message)
    if run.plan.spec.elastic is None:
        message = "it has a fixed number of replicas: launch a run with `replicas: {min, start, max}`"
        raise ScaleRefusedError(message)
    return run


def _scaled(run: ActiveRun, request: ScaleRequest, per_second: int) -> Scaling | None:
    """Change the seats; the change, also of an earlier call. None where nothing changes.

    Raises:
        ScaleRefusedError: nothing was changed.
    """
    spec, elastic, found = run.plan.spec, elastic_of(run.plan.spec), seats_of(run)
    if _was_answered(found, request):
        return _of_request(found, request)
    wanted = _wanted(run, elastic, request)
    lost = lost_ranks(run)
    has_budget = elastic.budget_usd_per_hour is not None
    records: dict[int, Record | None] = {}

    def change(before: Seats | None) -> Seats:
        seats = before or first_seats(run)
        if seats.ended is not None:
            message = f"the run ends: {seats.ended}"
            raise ScaleRefusedError(message)
        if _was_answered(seats, request):
            return seats
        if request.time is not None and request.made_at < (seats.asked_at or ""):
            message = f"a newer request, made at {seats.asked_at}, was answered first: {seats.wanted:,} are wanted"
            raise ScaleRefusedError(message)
        ranks = seats.open_ranks - lost
        if has_budget or len(ranks) > wanted:
            # Here, because another request may have opened more ranks meanwhile. It only reads.
            records.update(_records(run, ranks - records.keys()))
        there = [(rank, records.get(rank)) for rank in ranks]
        down = leavers(spec, there, len(ranks) - wanted)
        missing = opened(seats, spec.replicas, wanted, lost)
        if missing and (reason := reached_ceiling(run)) is not None:
            raise ScaleRefusedError(reason)  # the attempts of these seats would be lost, and the seats with them
        up = paid_seats(spec, there, missing)
        if missing and not up:
            message = f"elastic.budget_usd_per_hour pays for no more than the {len(ranks):,} replicas that are wanted"
            raise ScaleRefusedError(message)
        replicas = wanted if up == missing else len(ranks) + len(up)
        seats = seats.asked(request.made_at)
        if not up and not down and replicas == seats.wanted:
            return seats.kept(request.by)
        return seats.scaled(
            Scaling(
                at=clock.now(),
                replicas=replicas,
                opened=show_ranks(up),
                closed=show_ranks(down),
                by=request.by,
                revision=seats.revision + 1,
                before=seats.wanted,
                per_second=per_second,
            )
        )

    return _of_request(run.documents.store.change(Seats, seats_key(run.plan.run), change), request)


def _is_whole(value: JsonValue) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _wanted(run: ActiveRun, elastic: Elastic, request: ScaleRequest) -> int:
    """The number that is asked for, which the run can have.

    Raises:
        ScaleRefusedError: it cannot.
    """
    if not _is_whole(request.replicas):
        raise ScaleRefusedError(str(Problem("replicas", json.dumps(request.replicas), "write a whole number")))
    if problems := list(scale_problems(elastic, run.plan.spec.replicas, request.replicas)):
        raise ScaleRefusedError("; ".join(map(str, problems)))
    if run.is_stopping or run.documents.result() is not None:
        message = "the run has ended, or is being stopped"
        raise ScaleRefusedError(message)
    return request.replicas


def _was_answered(seats: Seats, request: ScaleRequest) -> bool:
    """Whether an earlier call has carried out a request, or has found nothing to change.

    Raises:
        ScaleRefusedError: it has refused it.
    """
    refusal = next((one for one in seats.refusals if one.by == request.by), None)
    if refusal is not None:
        raise ScaleRefusedError(refusal.reason)
    return request.by in seats.unchanged or _of_request(seats, request) is not None


def _of_request(seats: Seats, request: ScaleRequest) -> Scaling | None:
    """What a request has changed."""
    return next((one for one in seats.scalings if one.by == request.by), None)


def _records(run: ActiveRun, ranks: Collection[int]) -> dict[int, Record | None]:
    return dict(in_parallel(lambda rank: (rank, run.documents.record(rank).record), sorted(ranks)))


def _follow(plane: ControlPlane, run: ActiveRun, budget: TimeBudget) -> None:
    """Do what follows from the seats."""
    seats = seats_of(run)
    wake(plane, run, seats, budget)
    # Most closed seats may never have been launched: one list shows which have.
    launched = {*run.documents.store.keys(run.documents.layout.records)}
    closed = [
        replica
        for replica in run.replicas
        if replica.rank not in seats.open_ranks and run.documents.layout.record(replica.rank) in launched
    ]
    in_parallel(_let_leave, in_another_order(closed), budget)


def _let_leave(replica: ActiveReplica) -> None:
    record = replica.record().record
    # Another call may have opened the seat since.
    if record is not None and record.decision is None and replica.rank not in seats_of(replica.run).open_ranks:
        leave(replica, record.current.attempt)
