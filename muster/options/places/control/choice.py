"""The facts on which a replica's place depends, gathered from the roll-up, the commits and the price list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.aws.job_status import BEFORE_INSTANCE
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit
from muster.contract.run.record import Next
from muster.contract.run.roll_up import ReplicaEntry
from muster.contract.run.training_pace import STALLED_FACTOR
from muster.contract.run.where import Where
from muster.contract.spec.places import Places, Rung
from muster.contract.timestamps import seconds_between, text
from muster.control.round_notes import committed_rounds, last_commit, newest_commit
from muster.control.runtime import clock
from muster.control.runtime.function import logger
from muster.control.seat_keeper import seat_keeper
from muster.options.places.contract.ladder import (
    Facts,
    RungState,
    leads_elsewhere,
    longest_wait,
    refusals_of,
    share,
    where,
)

if TYPE_CHECKING:
    from muster.control.placement import PlacedReplica
    from muster.options.places.control.place_clients import PlaceClients

Price = Callable[[str, str], float | None]
_PRICE_SECONDS = 3_600.0
_LOOKS = 4
_LOOK_SECONDS = 1.0
"""For how long a replica waits for others to step back from its rung: as long as they take to record it."""
_prices: dict[tuple[str, str], tuple[float, float | None]] = {}
"""By region and type, for a warm function: when it was asked for, and the answer."""


def choose(replica: PlacedReplica, before: Sequence[Attempt], price: Price) -> Where:
    """Where the attempt that follows `before` goes."""
    spec = replica.run.plan.spec
    places = spec.places or Places()
    if places.shares:
        return share(places, replica.rank, spot=replica.spec.spot)
    return where(places, before, _facts(replica, before, places, price))


def closed(replica: PlacedReplica, current: Attempt) -> str | None:
    """Why an attempt is not launched: it has no rung, or replicas that chose at the same time have filled it.

    Each records its choice before it looks, so of too many the last one to record sees all others: none is launched
    beside as many as the rung may have, whoever chose first. Those that see each other do not all go elsewhere: a
    lower rank looks again while the higher ones step back.
    """
    places, at = replica.run.plan.spec.places or Places(), current.where or Where()
    if not at.launches:
        return at.why
    rung = None if at.rung is None else places.ladder[at.rung]
    if rung is None or rung.at_most is None:
        return None
    for look in range(_LOOKS):
        if look > 0:
            clock.sleep(_LOOK_SECONDS)
        others = [
            entry
            for entry in replica.run.documents.entries(replica.run.plan.spec.replicas)
            if entry.rank != replica.rank and _is_on(entry, at.rung)
        ]
        if len(others) < rung.at_most:
            return None
        if sum(one.rank < replica.rank or bool(one.attempts[-1].status) for one in others) >= rung.at_most:
            break
    return f"rung {at.rung} ({rung.place}) now has {rung.at_most}, as many as it may have"


def gives_up(replica: PlacedReplica, current: Attempt) -> str | None:
    """Why an attempt is given up whose place does not answer: its replica has another place, and trains no more.

    That a control plane cannot be reached says nothing about the jobs behind it. So a replica that was in the last
    round stays where it is, until the next one is so late that nobody waits for it any more.
    """
    run = replica.run
    places = run.plan.spec.places or Places()
    if current.where is None or not leads_elsewhere(places, current.where.place):
        return None
    if not current.has_proven_job:
        return "the next rung is tried"
    rounds = committed_rounds(run)
    commit = last_commit(run, rounds)
    if commit is not None and replica.rank in {one.rank for one in commit.finished}:
        return None
    version = run.documents.store.version(run.plan.shared_layout.commit(rounds)) if rounds else None
    launched, committed = current.launched_at or "", "" if version is None else text(version.written_at)
    if commit is not None and replica.rank not in commit.named and committed >= launched:
        return f"round {commit.round} was committed without it"
    waited = seconds_between(max(launched, committed), clock.now())
    if waited <= _overdue_seconds(run.plan.spec.rendezvous.timeout_seconds, commit):
        return None
    return f"no round was committed for {waited:,.0f} s"


def listed_price(clients: PlaceClients, region: str, instance_type: str) -> float | None:
    """What AWS lists; None where it cannot be asked now: no cap holds a replica back without a price."""
    known = _prices.get((region, instance_type))
    if known is None or clock.monotonic() - known[0] > _PRICE_SECONDS:
        try:
            found = clients.usd_per_hour(region, instance_type)
        except (BotoCoreError, ClientError):
            logger.warning("the price is not known", extra={"region": region, "type": instance_type}, exc_info=True)
            return None if known is None else known[1]
        known = _prices[region, instance_type] = (clock.monotonic(), found)
    return known[1]


def _overdue_seconds(timeout_seconds: float, before: Commit | None) -> float:
    """How long after the commit `before` nobody waits for the next round any more. Pure.

    Whoever makes a round trains about as long as in the rounds before, and then waits for a time-out. Where it is not
    known how long rounds take, a time-out stands for that, too.
    """
    usual = timeout_seconds if before is None or before.pace is None else before.pace.longest_seconds
    return timeout_seconds + STALLED_FACTOR * usual


def _facts(replica: PlacedReplica, before: Sequence[Attempt], places: Places, price: Price) -> Facts:
    run, spec = replica.run, replica.spec
    others = [entry for entry in run.documents.entries(run.plan.spec.replicas) if entry.rank != replica.rank]
    launched = {entry.rank for entry in others if not _waits(entry)}
    seats = seat_keeper(run.plan.spec)
    about_to_be = set(range(replica.rank)) - launched - (set() if seats is None else seats.parked(run))
    commit = None if places.by_seconds is None else newest_commit(run)
    now, until = clock.now(), None

    def priced(rung: Rung) -> float | None:
        kind = rung.instance_type or spec.instance_type
        return None if rung.price_cap is None or kind is None else price(rung.place, kind)

    if places.by_seconds is not None:
        # The run may have waited in the run queue.
        attempts = (*before, *(attempt for entry in others for attempt in entry.attempts))
        first = min((attempt.launched_at for attempt in attempts if attempt.launched_at), default=now)
        until = places.by_seconds - seconds_between(first, now)
    return Facts(
        now=now,
        rungs=[_state(number, others, places, priced) for number in range(len(places.ladder))],
        waiting_before=len(about_to_be),
        spot=spec.spot,
        left_seconds=None if commit is None else _left(commit),
        until_deadline=until,
        wait_seconds=longest_wait(spec),
    )


def _state(
    number: int, entries: Iterable[ReplicaEntry], places: Places, priced: Callable[[Rung], float | None]
) -> RungState:
    """What the attempts of other replicas say about a rung."""
    on_it = trying = 0
    refused = served = None
    for entry in entries:
        refused_at = refusals_of(places.ladder, entry.attempts).get(number)
        refused = max(refused or refused_at, refused_at) if refused_at else refused
        for attempt in entry.attempts:
            if attempt.where is None or attempt.where.rung != number or not attempt.where.launches:
                continue
            served_at = next((step.at for step in attempt.history if step.secondary not in BEFORE_INSTANCE), None)
            served = max(served or served_at, served_at) if served_at else served
            if attempt is entry.attempts[-1] and entry.decision is None:
                on_it += 1
                trying += served_at is None
    return RungState(on_it, trying, refused, served, priced(places.ladder[number]))


def _is_on(entry: ReplicaEntry, rung: int | None) -> bool:
    """Whether the latest attempt of a replica is on a rung."""
    where = entry.attempts[-1].where
    return where is not None and where.launches and where.rung == rung and entry.decision is None


def _waits(entry: ReplicaEntry) -> bool:
    """Whether a replica is about to be launched again."""
    decision = entry.decision
    return decision is not None and decision.next is Next.RERUN and not decision.parked


def _left(commit: Commit) -> float | None:
    if commit.pace is None or commit.expected_rounds is None:
        return None
    return max(0, commit.expected_rounds - commit.round) * commit.pace.round_seconds
