"""Which jobs Kueue admits, and which give way."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from muster.options.hyperpod.local.kueue import Claim, decide

QUOTA = {"cpu": Fraction(8)}


def claim(key: str, pods: int = 2, *, priority: int = 0, granted: int = 0, **more: Any) -> Claim:
    made = Claim(key, priority, f"2026-01-01T00:00:0{len(key)}Z", {"cpu": Fraction(2)}, (pods,), granted)
    return replace(made, **more)


def test_what_fits_is_admitted_in_the_order_of_priority_and_age() -> None:
    decision = decide([claim("aaa", 2), claim("a", 2, created="2026-01-02"), claim("b", 2, priority=5)], QUOTA)
    assert decision.grants == {"b": 2, "aaa": 2}


def test_a_smaller_workload_passes_one_that_does_not_fit() -> None:
    decision = decide([claim("big", 5, priority=5), claim("small", 1)], QUOTA)
    assert decision.grants == {"small": 1}


def test_a_lower_priority_gives_way_and_the_newest_of_them_first() -> None:
    running = [claim("old", 2, granted=2, granted_at=1.0), claim("new", 2, granted=2, granted_at=2.0)]
    decision = decide([*running, claim("vip", 2, priority=9)], QUOTA)
    assert decision.evictions == ["new"]
    assert decision.grants == {}


def test_nothing_is_evicted_where_that_would_not_be_enough() -> None:
    decision = decide([claim("old", 2, granted=2), claim("vip", 5, priority=9)], QUOTA)
    assert decision.evictions == []


def test_the_same_priority_waits() -> None:
    decision = decide([claim("old", 4, granted=4), claim("next", 1)], QUOTA)
    assert (decision.evictions, decision.grants) == ([], {})


def test_the_pods_of_an_evicted_workload_hold_its_quota_until_they_have_ended() -> None:
    evicted = claim("evicted", 4, releasing=4)
    assert decide([evicted, claim("next", 1)], QUOTA).grants == {}
    assert decide([replace(evicted, releasing=0, held=True), claim("next", 1)], QUOTA).grants == {"next": 1}


def test_a_resource_that_the_quota_does_not_cover_is_not_given() -> None:
    gpu = claim("gpu", 1, each={"cpu": Fraction(1), "nvidia.com/gpu": Fraction(1)})
    assert decide([gpu], QUOTA).grants == {}


def test_an_elastic_workload_gets_what_there_is_and_more_when_more_comes() -> None:
    elastic = claim("elastic", counts=(1, 2, 3))
    assert decide([claim("other", 2, granted=2), elastic], QUOTA).grants == {"elastic": 2}
    assert decide([replace(elastic, granted=2)], QUOTA).grants == {"elastic": 3}
