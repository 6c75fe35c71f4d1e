"""Where each seat of an elastic run stands, by its document and what is recorded of its attempts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import NamedTuple

from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.job_status import BEFORE_TRAINING, JobStatus
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Decision, Next
from muster.contract.run.seat_states import (
    SeatChange,
    SeatDocument,
    SeatGroup,
    SeatRecord,
    SeatState,
    SeatsView,
)
from muster.contract.spec.elastic import SeatLimits
from muster.contract.timestamps import Timestamp
from muster.contract.training.ranks import show_ranks
from muster.options.elastic.contract.seats import Seats, seats_key

_NOT_TRAINING = {*BEFORE_TRAINING, "Interrupted", "Restarting"}
_STOPS = {None, FailureClass.STOPPED_BY_USER, FailureClass.STOPPED_BY_MUSTER}
_UNWANTED = "not wanted"


class _Standing(NamedTuple):
    state: SeatState
    reason: str = ""
    until: Timestamp | None = None


def seats_view(
    body: bytes | None, run: str, limits: SeatLimits, records: Mapping[int, SeatRecord], ended: bool = False
) -> SeatsView:
    """The seats of a run; see `SeatDocument.view`.

    Raises:
        DocumentError: the document cannot be read.
    """
    seats = Seats.first(run, limits.start) if body is None else Seats.from_json(body, seats_key(run))
    open_ranks, unwanted = seats.open_ranks, seats.ended or _UNWANTED
    found = {
        rank: standing(records.get(rank), is_open=rank in open_ranks, ended=ended, unwanted=unwanted)
        for rank in sorted(open_ranks | {*records})
    }
    rest = [rank for rank in range(limits.most) if rank not in found]
    return SeatsView(
        **limits._asdict(),
        wanted=seats.wanted,
        present=sum(one.state is SeatState.TRAINING for one in found.values()),
        open=seats.open,
        groups=tuple(_groups({**found, **dict.fromkeys(rest, _Standing(SeatState.PARKED, unwanted))})),
        changes=tuple(
            SeatChange(at=one.at, replicas=one.replicas, opened=one.opened, closed=one.closed, by=one.by)
            for one in seats.scalings
        ),
        ended=seats.ended,
    )


def standing(record: SeatRecord | None, *, is_open: bool, ended: bool, unwanted: str = _UNWANTED) -> _Standing:
    """Where a seat stands. `record` is None before its first launch; `ended`: its run has ended."""
    parked = _Standing(SeatState.PARKED, unwanted)
    if record is None or not record.attempts:
        return _Standing(SeatState.STARTING) if is_open and not ended else parked
    latest, decision = record.attempts[-1], record.decision
    if latest.was_created and latest.ended_at is None and latest.status != JobStatus.COMPLETED:
        trains = latest.status == JobStatus.STOPPING or latest.secondary not in {"", *_NOT_TRAINING}
        return _Standing(SeatState.LEAVING if not is_open else SeatState.TRAINING if trains else SeatState.STARTING)
    over = ended or (decision is not None and decision.next is not Next.RERUN)
    if latest.status == JobStatus.COMPLETED or over or (decision is not None and decision.lost):
        return _after_end(latest, decision, parked if not is_open else None)
    if not is_open:
        return parked
    if latest.is_shortage and decision is not None:
        return _Standing(SeatState.WAITING, _shortage(latest), _next_look(decision))
    return _Standing(SeatState.STARTING)


def _after_end(latest: Attempt, decision: Decision | None, parked: _Standing | None) -> _Standing:
    """Of a seat whose last attempt no other follows; `parked`: it is not wanted."""
    if latest.status == JobStatus.COMPLETED:
        return _Standing(SeatState.ENDED)
    if decision is not None and decision.lost:
        return _Standing(SeatState.LOST, str(latest.failure_class or ""))
    if decision is not None and decision.parked:
        return parked or _Standing(SeatState.PARKED, f"no capacity for {_shortage(latest)}")
    if parked is not None:
        return parked
    failed = latest.failure_class not in _STOPS
    return _Standing(SeatState.LOST, str(latest.failure_class)) if failed else _Standing(SeatState.ENDED)


def _shortage(attempt: Attempt) -> str:
    """`ml.p5.48xlarge`, or `quota of ml.p5.48xlarge`."""
    if attempt.instance_type is None:
        return str(attempt.failure_class)
    quota = "quota of " if attempt.failure_class is FailureClass.QUOTA else ""
    return f"{quota}{attempt.instance_type}"


def _next_look(decision: Decision) -> Timestamp | None:
    if decision.decided_at is None:
        return None
    return timestamps.text(timestamps.parse(decision.decided_at) + timedelta(seconds=decision.delay_seconds))


def _groups(found: Mapping[int, _Standing]) -> Iterable[SeatGroup]:
    """The seats in groups, those that train first."""
    ranks: dict[tuple[SeatState, str], list[int]] = {}
    for rank in sorted(found):
        ranks.setdefault((found[rank].state, found[rank].reason), []).append(rank)
    order = list(SeatState)
    for state, reason in sorted(ranks, key=lambda key: (order.index(key[0]), ranks[key][0])):
        whose = ranks[state, reason]
        untils = [until for until in (found[rank].until for rank in whose) if until is not None]
        until = min(untils, default=None)
        yield SeatGroup(state=state, ranks=show_ranks(whose), count=len(whose), reason=reason, until=until)


OFFER = SeatDocument(seats_key, seats_view)
