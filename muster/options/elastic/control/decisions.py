"""What follows for a seat from the documents of its run. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from math import ceil

from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.names import ATTEMPT_MAX
from muster.contract.run.attempt import Attempt, shortages
from muster.contract.run.record import Decision, Next, Record
from muster.contract.run.run_cost import paid_for, seat_usd_per_hour
from muster.contract.spec.elastic import Elastic
from muster.contract.spec.run_limits import RUN_MAX_SECONDS
from muster.contract.spec.spec import Spec
from muster.contract.timestamps import Timestamp
from muster.control.rerun_decision import jittered, rerun
from muster.options.elastic.contract.seats import Seats

_TRAINS = {"Training", "Uploading"}
_SHORT_SECONDS = 60
"""A rest of a wait that the workflow waits out by itself: so functions whose clocks differ agree in the end."""

_LOOKS_PER_DOUBLING = 25


@dataclass(frozen=True)
class Held:
    """Why an attempt's token is kept, and until when, where the seat then looks again."""

    reason: str
    until: Timestamp | None = None


def place(seats: Seats, rank: int, decided: Decision | None, now: Timestamp) -> Held | Decision | None:
    """Whether the attempt that was `decided`, the first one without a decision, is held; None where it is launched.

    A decision is what its workflow gets instead.
    """
    attempt, parked = (1, False) if decided is None else (decided.attempt, decided.parked)
    opening = seats.opening(rank)
    is_open = rank in seats.open_ranks
    if seats.ended is not None and (not is_open or parked or (decided is None and opening is not None)):
        return Decision(next=Next.FAIL, attempt=attempt, reason=seats.ended)
    if not is_open:
        return Held("its seat is not wanted")
    due = now if opening is None else opening.slot(rank)
    if decided is not None and parked and decided.decided_at is not None:
        again = timestamps.text(timestamps.parse(decided.decided_at) + timedelta(seconds=decided.delay_seconds))
        if timestamps.seconds_between(now, again) > _SHORT_SECONDS:
            return Held("there is no capacity", again)
        due = max(due, again)
    wait = timestamps.seconds_between(now, due)
    if wait <= 0:
        return None
    # The workflow waits for what is short, in pieces.
    return Decision(next=Next.RERUN, attempt=attempt, delay_seconds=ceil(wait), decided_at=now, reason="it is early")


def parked_after(spec: Spec, attempts: Sequence[Attempt], now: Timestamp) -> Decision | None:
    """What follows the last of `attempts` where its seat was closed, or has found neither capacity nor quota.

    A seat that looks for capacity costs nothing, so no budget ends its search.
    """
    current, elastic = attempts[-1], spec.elastic
    if elastic is None:
        return None
    following, types = current.attempt + 1, spec.alternatives
    if current.failure_class is FailureClass.STOPPED_BY_MUSTER:
        return Decision(next=Next.RERUN, attempt=following, parked=True, reason="its seat is not wanted")
    if not current.is_shortage or current.failure_class is None:
        return None
    streak = [*takewhile(lambda one: one.is_shortage, reversed(attempts))]
    since = streak[-1].ended_at or now
    budget, tried = spec.budget(current.failure_class), max(0, len(streak) // types - 1)
    may_wait = timestamps.seconds_between(since, now) <= elastic.park_after_seconds and tried < budget.max_reruns
    if may_wait or shortages(attempts) % types:
        return rerun(attempts, types, budget.delay(tried))
    delay = jittered(_look_seconds(elastic, current.attempt), current.job)
    reason = f"no {current.failure_class} since {since}: {current.reason}"
    return Decision(next=Next.RERUN, attempt=following, parked=True, delay_seconds=delay, reason=reason)


def _look_seconds(elastic: Elastic, attempt: int) -> int:
    """How long a seat without capacity is parked after `attempt`.

    A look is an attempt, of which a replica has ATTEMPT_MAX. With the second half of them the wait doubles again and
    again, so that they last for the longest run, and some are left for reruns.
    """
    doublings = max(0, attempt - ATTEMPT_MAX // 2) // _LOOKS_PER_DOUBLING
    return int(min(elastic.retry_parked_seconds * 2**doublings, RUN_MAX_SECONDS))


def paid_seats(spec: Spec, records: Sequence[tuple[int, Record | None]], up: Sequence[int]) -> list[int]:
    """Of the ranks to open, in their order, those that the budget pays for beside the open ones; up to `min` all are.

    An open seat costs what the type of its job does, another one the dearest that it may have.
    """
    elastic = spec.elastic
    if elastic is None or elastic.budget_usd_per_hour is None:
        return list(up)
    types = {rank: None if record is None else record.current.instance_type for rank, record in records}
    left = elastic.budget_usd_per_hour - sum(seat_usd_per_hour(spec.of_rank(rank), types[rank]) for rank in types)
    paid = paid_for((seat_usd_per_hour(spec.of_rank(rank)) for rank in up), left)
    return list(up[: max(paid, elastic.min - len(types))])


def leavers(spec: Spec, records: Iterable[tuple[int, Record | None]], count: int) -> list[int]:
    """Which of the open ranks are closed, so that `count` fewer are wanted.

    First those without a job, then those that do not train yet, the dearest, the youngest, the highest.
    """

    def order(one: tuple[int, Record | None]) -> tuple[bool, bool, float, str, int]:
        rank, record = one
        current = None if record is None else record.current
        has_job = record is not None and record.decision is None
        trains = has_job and current is not None and current.secondary in _TRAINS
        kind = None if current is None else current.instance_type
        price = 0.0 if kind is None else spec.prices.usd_per_hour.get(kind, 0.0)
        return not has_job, not trains, price, (current and current.launched_at) or "", rank

    chosen = sorted(records, key=order, reverse=True)[: max(0, count)]
    return sorted(rank for rank, _ in chosen)
