"""The choice of a rung, from the attempts of a replica and what is known of the others."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.where import Where
from muster.contract.spec.places import Places
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.timestamps import Timestamp
from muster.options.places.contract.ladder import Facts, RungState, longest_wait, where

_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_LADDER: list[dict[str, Any]] = [{"place": "oregon", "spot": True}, {"place": "tokyo", "spot": True}, {"place": "home"}]


def at(seconds: float) -> Timestamp:
    return timestamps.text(_BEGIN + timedelta(seconds=seconds))


def ladder(*rungs: dict[str, Any], **fields: Any) -> Places:
    return Places.model_validate({"ladder": list(rungs or _LADDER), **fields})


def ended(rung: int, seconds: float, failure_class: FailureClass = FailureClass.CAPACITY, **of: Any) -> Attempt:
    place = _LADDER[rung]["place"]
    return Attempt(
        attempt=1,
        job="job",
        ended_at=at(seconds),
        failure_class=failure_class,
        where=Where(place=str(place), rung=rung, **of),
    )


def chosen(places: Places, attempts: list[Attempt], now: float = 0.0, **of: Any) -> Where:
    states = of.pop("rungs", {})
    rungs = [states.get(number, RungState()) for number in range(len(places.ladder))]
    return where(places, attempts, Facts(now=at(now), rungs=rungs, **of))


@pytest.mark.parametrize(
    ("before", "now", "rung"),
    [
        ([], 0, 0),
        ([ended(0, 10)], 11, 1),
        ([ended(0, 10), ended(1, 20)], 21, 2),
        ([ended(0, 10), ended(1, 20), ended(2, 30)], 31, 0),  # all have refused it: that of the oldest refusal
        ([ended(0, 10), ended(1, 20, FailureClass.INFRASTRUCTURE)], 21, 1),  # it stays where it trained
        ([ended(0, 10), ended(1, 20, FailureClass.SPOT)], 21, 2),
        ([ended(0, 10), ended(1, 4_000, FailureClass.INFRASTRUCTURE)], 4_001, 0),  # after return_after_seconds
        ([ended(0, 10), ended(1, 4_000)], 4_001, 0),
        ([ended(0, 10, FailureClass.INFRASTRUCTURE, silent_since=at(5))], 11, 1),
    ],
)
def test_the_next_rung_is_the_first_that_has_not_refused_the_replica_lately(
    before: list[Attempt], now: float, rung: int
) -> None:
    assert chosen(ladder(), before, now).rung == rung


def test_a_rung_that_has_just_refused_others_is_tried_by_a_few_alone() -> None:
    refused = RungState(on_it=2, trying=2, refused_at=at(100))
    assert chosen(ladder(), [], 110, rungs={0: refused}).rung == 1
    one = RungState(on_it=1, trying=1, refused_at=at(100))
    assert chosen(ladder(), [], 110, rungs={0: one}).rung == 0
    served = RungState(on_it=2, trying=2, refused_at=at(100), served_at=at(105))
    assert chosen(ladder(), [], 110, rungs={0: served}).rung == 0
    assert chosen(ladder(), [], 500, rungs={0: refused}).rung == 0
    everywhere = dict.fromkeys(range(3), refused)
    assert chosen(ladder(), [], 110, rungs=everywhere).why == "no other rung is open"


def test_lower_ranks_that_are_about_to_be_launched_fill_a_rung_first() -> None:
    places = ladder({"place": "oregon", "at_most": 2}, {"place": "tokyo", "at_most": 1}, {"place": "home"})
    rungs = [chosen(places, [], waiting_before=rank).rung for rank in range(5)]
    assert rungs == [0, 0, 1, 2, 2]
    full = {0: RungState(on_it=2)}
    assert chosen(places, [], rungs=full).rung == 1
    assert chosen(places, [], rungs=full, waiting_before=1).rung == 2


def test_the_price_cap_holds_and_an_unknown_price_does_not() -> None:
    places = ladder({"place": "oregon", "price_cap": 2.0}, {"place": "home", "price_cap": 3.0})
    assert chosen(places, [], rungs={0: RungState(usd_per_hour=2.5)}).rung == 1
    assert chosen(places, [], rungs={0: RungState(usd_per_hour=2.0)}).rung == 0
    assert chosen(places, []).rung == 0
    found = chosen(places, [], rungs=dict.fromkeys((0, 1), RungState(usd_per_hour=9.0)))
    assert not found.launches
    cost = "costs $9.00 an hour on demand, as AWS lists it, above its cap of $2.00"
    assert found.why.startswith(f"no rung is open: rung 0 (oregon) {cost}; rung 1")


def test_near_the_deadline_spot_comes_last() -> None:
    places = ladder(by_seconds=10_000)
    early = chosen(places, [], left_seconds=3_000.0, until_deadline=10_000.0)
    late = chosen(places, [], left_seconds=3_000.0, until_deadline=3_800.0)
    assert (early.rung, late.rung, late.spot) == (0, 2, False)
    assert late.why == "the deadline is near"
    assert chosen(places, [ended(2, 1)], 2, left_seconds=3_000.0, until_deadline=3_800.0).rung == 0


_ALL_SPOT_REFUSED = [ended(1, 10), ended(0, 20)]


@pytest.mark.parametrize(
    ("left", "until", "wait", "rung"),
    [
        (3_000.0, 9_000.0, 0.0, 1),  # the spot rung of the oldest refusal
        (3_000.0, 3_901.0, 0.0, 1),
        (3_000.0, 3_901.0, 2.0, 2),  # the next attempt could be too late
        (None, 9_501.0, 0.0, 1),
        (None, 9_499.0, 0.0, 2),  # it has waited a twentieth, and no round says how long the run takes
        (None, None, 0.0, 2),
    ],
)
def test_on_demand_below_spot_is_tried_last_while_the_run_can_wait(
    left: float | None, until: float | None, wait: float, rung: int
) -> None:
    places = ladder(by_seconds=10_000 if until else None)
    facts = {"left_seconds": left, "until_deadline": until, "wait_seconds": wait}
    assert chosen(places, _ALL_SPOT_REFUSED, 21, **facts).rung == rung


def test_what_is_on_demand_above_spot_or_reserved_keeps_its_place_in_the_ladder() -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p"
    spot = {"place": "oregon", "spot": True}
    early = {"left_seconds": 3_000.0, "until_deadline": 9_000.0}
    above = ladder({"place": "home", "at_most": 1}, spot, by_seconds=10_000)
    assert chosen(above, [], **early).rung == 0
    reserved = ladder(spot, {"place": "home", "training_plan": plan}, by_seconds=10_000)
    assert chosen(reserved, [ended(0, 1)], 2, **early).rung == 1


def test_the_longest_wait_is_that_of_the_budgets_of_refusals() -> None:
    fields = {"replicas": 4, "trainer": "a.b:c"}
    assert longest_wait(parse_spec(fields)) == 1.25 * 1_800
    none = {"max_reruns": 0}
    reruns = {"capacity": none, "quota": none, "spot": {"max_reruns": 2, "delay_seconds": 60}}
    assert longest_wait(parse_spec({**fields, "reruns": reruns})) == 1.25 * 120


def test_places_of_a_spec_without_a_spot_rung_take_the_specs() -> None:
    places = ladder(
        {"place": "oregon"},
        {"place": "home", "training_plan": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p"},
    )
    assert chosen(places, [], spot=True).spot
    planned = chosen(places, [ended(0, 1)], 2, spot=True)
    assert (planned.spot, planned.training_plan) == (False, "arn:aws:sagemaker:us-east-1:123456789012:training-plan/p")
