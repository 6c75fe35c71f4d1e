"""Which rung of its ladder a replica's next attempt gets. Pure: the same facts give the same choice.

A replica takes the first rung, in the order of the spec, that has not refused it lately. So after a refusal it tries
the next one at once, and `return_after_seconds` later its next attempt begins at the first rung again. When all have
refused it lately, it takes the one whose refusal is the oldest.

A rung is passed over whose price on demand is above its cap, or that has as many replicas as it may have; and one that
has just refused others, while enough of them try it again.

With `by_seconds`, what is on demand below spot is tried last as long as the run can wait for spot: nothing ends an
attempt there, so its replica would pay it until the run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.where import Where
from muster.contract.spec.places import Places, Rung
from muster.contract.spec.spec import Spec
from muster.contract.timestamps import Timestamp, seconds_between

PROBES = 2
"""How many replicas at once try a rung that has just refused one."""
JUST_SECONDS = 300.0
START_SECONDS = 600.0
"""For how long a replica may look for an instance and load its image before it trains."""
_MARGIN = 1.1
_UNKNOWN = 0.95
"""The share of `by_seconds` after which nobody waits for spot while no round says how long the run takes."""
_WHY_MAX = 300
_REFUSALS = {FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.SPOT}


@dataclass(frozen=True)
class RungState:
    """What is known of a rung from the attempts of all replicas, and from its price."""

    on_it: int = 0
    """Replicas whose latest attempt is on it."""
    trying: int = 0
    """Those of them that have no instance yet."""
    refused_at: Timestamp | None = None
    served_at: Timestamp | None = None
    """When a replica that was launched on it had an instance."""
    usd_per_hour: float | None = None
    """On demand, as AWS lists it."""


@dataclass(frozen=True)
class Facts:
    """On what the choice of a rank depends beside its own attempts."""

    now: Timestamp
    rungs: Sequence[RungState]
    waiting_before: int = 0
    """Lower ranks that are about to be launched: they fill rungs first."""
    spot: bool = False
    """Whether a rung that does not say is on spot."""
    left_seconds: float | None = None
    """For how long the run still trains at its present pace; None where that is not known."""
    until_deadline: float | None = None
    """Seconds until `by_seconds`."""
    wait_seconds: float = 0.0
    """For how long a replica may wait between two attempts."""

    @property
    def must_hurry(self) -> bool:
        """Whether the run would be late if it lost an instance now, or found none."""
        if self.until_deadline is None or self.left_seconds is None:
            return False
        return self.until_deadline <= self.left_seconds * _MARGIN + START_SECONDS + self.wait_seconds

    def can_wait(self, places: Places) -> bool:
        """Whether the run is in time although its replica waits for spot."""
        if places.by_seconds is None or self.until_deadline is None or self.must_hurry:
            return False
        return self.left_seconds is not None or self.until_deadline > places.by_seconds * _UNKNOWN


def where(places: Places, attempts: Sequence[Attempt], facts: Facts) -> Where:
    """Where the attempt goes that follows `attempts`, those of one replica."""
    facts = replace(facts, rungs=_with_waiting(places.ladder, facts))
    refusals = refusals_of(places.ladder, attempts)
    order = _order(places, refusals, facts)
    passed: list[str] = []
    skipped: int | None = None
    for number in order:
        rung, state = places.ladder[number], facts.rungs[number]
        closed = _closed(rung, state)
        if closed is None and (closed := _probed(state, facts.now)) is not None and skipped is None:
            skipped = number
        if closed is None:
            return _chosen(places, number, facts, _why(places, number, refusals, facts, passed))
        passed.append(f"rung {number} ({rung.place}) {closed}")
    if skipped is not None:
        return _chosen(places, skipped, facts, "no other rung is open")
    return Where(why=_cut(f"no rung is open: {'; '.join(passed)}"), launches=False)


def share(places: Places, rank: int, *, spot: bool) -> Where:
    """Where every attempt of a rank goes whose place is fixed."""
    return Where(place=places.share_of(rank), spot=spot, why="its share")


def refusals_of(ladder: Sequence[Rung], attempts: Iterable[Attempt]) -> dict[int, Timestamp]:
    """When each rung last had no instance for a replica, by its attempts. A place that is silent refuses on all."""
    found: dict[int, Timestamp] = {}
    for attempt in attempts:
        at, at_place = attempt.ended_at, attempt.where
        if at is None or at_place is None or at_place.rung is None:
            continue
        if is_silent_end(attempt):
            found |= {number: at for number, rung in enumerate(ladder) if rung.place == at_place.place}
        elif attempt.failure_class in _REFUSALS:
            found[at_place.rung] = at
    return found


def is_silent_end(attempt: Attempt) -> bool:
    """Whether it was given up because its place did not answer."""
    return attempt.where is not None and attempt.where.silent_since is not None and attempt.ended_at is not None


def longest_wait(spec: Spec) -> float:
    """Seconds that a replica may wait after a refusal, by its budgets."""
    return max(max(spec.budget(one).longest_delays(), default=0.0) for one in _REFUSALS)


def leads_elsewhere(places: Places, place: str) -> bool:
    """Whether a replica that can do nothing in `place` has another one."""
    return any(rung.place != place for rung in places.ladder)


def _order(places: Places, refusals: dict[int, Timestamp], facts: Facts) -> list[int]:
    numbers = range(len(places.ladder))
    lately = {
        number: at
        for number, at in refusals.items()
        if seconds_between(at, facts.now) < max(1.0, places.return_after_seconds)
    }
    fresh = [number for number in numbers if number not in lately]
    found = [*fresh, *sorted(lately, key=lambda number: (lately[number], number))]
    if facts.must_hurry:
        # What is reserved or on demand keeps its instance; spot may lose it once more.
        found.sort(key=lambda number: (number in lately, places.ladder[number].is_spot(facts.spot)))
    elif facts.can_wait(places):
        found.sort(key=lambda number: _is_last_resort(places.ladder, number, facts))
    return found


def _is_last_resort(ladder: Sequence[Rung], number: int, facts: Facts) -> bool:
    on_demand = not ladder[number].is_spot(facts.spot) and ladder[number].training_plan is None
    return on_demand and any(rung.is_spot(facts.spot) for rung in ladder[:number])


def _with_waiting(ladder: Sequence[Rung], facts: Facts) -> list[RungState]:
    """The rungs once the lower ranks have filled them that are about to be launched."""
    left, found = facts.waiting_before, []
    for rung, state in zip(ladder, facts.rungs, strict=True):
        room = left if rung.at_most is None else max(0, rung.at_most - state.on_it)
        taken = 0 if _is_dear(rung, state) else min(left, room)
        found.append(replace(state, on_it=state.on_it + taken))
        left -= taken
    return found


def _closed(rung: Rung, state: RungState) -> str | None:
    """Why nobody may go there now."""
    if _is_dear(rung, state):
        cost = f"${state.usd_per_hour:,.2f} an hour on demand, as AWS lists it"
        return f"costs {cost}, above its cap of ${rung.price_cap:,.2f}"
    if rung.at_most is not None and state.on_it >= rung.at_most:
        return f"has {rung.at_most}, as many as it may have"
    return None


def _is_dear(rung: Rung, state: RungState) -> bool:
    return rung.price_cap is not None and state.usd_per_hour is not None and state.usd_per_hour > rung.price_cap


def _probed(state: RungState, now: Timestamp) -> str | None:
    """Whether others find out already if a rung that has just refused one has room again."""
    at = state.refused_at
    if at is None or seconds_between(at, now) >= JUST_SECONDS or (state.served_at or "") > at:
        return None
    return f"refused {_ago(at, now)}, and others try it" if state.trying >= PROBES else None


def _chosen(places: Places, number: int, facts: Facts, why: str) -> Where:
    rung = places.ladder[number]
    spot = rung.is_spot(facts.spot)
    return Where(place=rung.place, rung=number, spot=spot, training_plan=rung.training_plan, why=_cut(why))


def _why(places: Places, number: int, refusals: dict[int, Timestamp], facts: Facts, passed: Sequence[str]) -> str:
    words = [*_refused_before(places, number, refusals, facts), *passed]
    if facts.must_hurry:
        words.insert(0, "the deadline is near")
    return "; ".join(words) or ("the first rung" if number == 0 else "the next rung")


def _refused_before(places: Places, number: int, refusals: dict[int, Timestamp], facts: Facts) -> Iterator[str]:
    for other, at in sorted(refusals.items()):
        if other == number:
            yield f"back on it: it refused {_ago(at, facts.now)}"
        elif seconds_between(at, facts.now) < places.return_after_seconds:
            yield f"rung {other} ({places.ladder[other].place}) refused {_ago(at, facts.now)}"


def _ago(at: Timestamp, now: Timestamp) -> str:
    return f"{max(0, round(seconds_between(at, now)))} s ago"


def _cut(text: str) -> str:
    return text if len(text) <= _WHY_MAX else f"{text[: _WHY_MAX - 1]}…"
