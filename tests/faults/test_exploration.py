"""The exploration itself: it repeats a seed, finds what is broken, and shows it in few lines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from tests.exploration.defects import DEFECTS, Defect, find
from tests.exploration.draws import draw, run_seed
from tests.exploration.schedules import Event, Recorded, explore
from tests.exploration.shrink import kind_of, shrunk
from tests.exploration.simulated import simulated
from tests.exploration.transitions import REACHED, unreached
from tests.exploration.world import Setting, World

# Those that few schedules find; `python -m tests.exploration defects` puts all of them back.
SAMPLED = (
    "a lost commit race is not noticed",
    "no member takes over a late shard",
    "the mean adds this process's contribution first",
    "a header damaged in transit excludes its sender",
    "a snapshot is sealed before its shards are there",
    "an object that appears after a 403 is denied",
)


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield


def named(name: str) -> Defect:
    return next(defect for defect in DEFECTS if defect.name == name)


def test_a_seed_is_the_same_schedule_every_time() -> None:
    for seed, front_end in ((3, "arrays"), (11, "groups")):
        first, second = run_seed(seed, front_end)[1], run_seed(seed, front_end)[1]
        assert (first.steps, first.seconds, first.seen) == (second.steps, second.seconds, second.seen)
        states, again = ([found.known.tobytes() for found in world.states.values()] for world in (first, second))
        assert states == again
        assert len(states) > 1


def test_a_rank_has_a_rerun_left_when_those_come_back_that_its_quorum_needs() -> None:
    plans = [draw(random.Random(seed), "torchft") for seed in range(2_000)]  # noqa: S311 - has to be repeatable
    # While they are away the others may lack a quorum, and each time-out takes a rerun from them.
    absent = [sum(event.after_seconds + event.stalls + event.cuts_off for event in plan.events) for plan in plans]
    assert all(
        plan.setting.timeout_seconds * plan.setting.reruns > away for plan, away in zip(plans, absent, strict=True)
    )
    assert max(absent) > 60


# Until a member takes its next step, the state after a round is in no bucket.
LAST = 2
TORCHFT = Setting(rounds=LAST, timeout_seconds=30.0, reruns=3, front_end="torchft")
KEEPER = LAST % TORCHFT.replicas
EVERY = range(TORCHFT.replicas)


@pytest.mark.parametrize(
    ("committed", "ranks", "stops"),
    [(1, EVERY, False), (LAST, EVERY, False), (LAST, EVERY, True), (LAST, [KEEPER], False)],
    ids=["all are killed", "all are killed in the last round", "all are told to stop", "the last keeper is killed"],
)
def test_torchfts_members_end_after_a_commit_and_the_round_is_replayed(
    committed: int, ranks: Sequence[int], stops: bool
) -> None:
    def worlds() -> Iterator[World]:
        for step in range(0, 48, 4):
            events = [Event(step, rank, not stops, not stops, stops=stops, committed=committed) for rank in ranks]
            yield explore(TORCHFT, Recorded([]), events)

    found = list(worlds())
    assert [world.problems for world in found if world.problems] == []
    assert any(world.seen["logged: replayed"] for world in found)
    with named("the state of the last round is waited for").put_back():
        assert any(world.problems for world in worlds())


@pytest.mark.parametrize("name", SAMPLED)
def test_a_defect_that_is_put_back_is_found(name: str) -> None:
    assert find(named(name), range(300)) is not None


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_every_defect_still_fits_the_code(defect: Defect) -> None:
    sound = defect.function.__code__
    with defect.put_back():
        assert defect.function.__code__ is not sound
    assert defect.function.__code__ is sound


def test_a_broken_schedule_is_shrunk_to_what_breaks_it() -> None:
    defect = named("a lost commit race is not noticed")
    found = find(defect, range(300))
    assert found is not None
    seed, problem = found
    plan, world = run_seed(seed)
    with defect.put_back():
        smallest, trace = shrunk(seed, "arrays", tries=150)
    assert kind_of(problem) in map(kind_of, trace)
    assert len(smallest.plan.events) <= len(plan.events)
    assert sum(map(bool, smallest.orders)) < len(world.choices.orders) / 4
    assert any("create commits/" in line for line in trace)


def test_a_transition_that_is_never_reached_is_named() -> None:
    assert unreached(Counter(dict.fromkeys(REACHED[1:], 1))) == [REACHED[0]]
