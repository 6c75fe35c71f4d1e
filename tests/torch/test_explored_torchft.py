"""torchft's front end in the exploration of the rendezvous: its own DiLoCo, in virtual time and under faults."""

from collections.abc import Iterator, Sequence
from functools import partial

import pytest

pytest.importorskip("torchft.local_sgd", reason="make test installs it")

from tests.exploration.defects import DEFECTS
from tests.exploration.draws import run_seed
from tests.exploration.schedules import Event, Recorded, explore
from tests.exploration.simulated import simulated
from tests.exploration.world import Setting, World
from tests.support.seeds import seeds_factor

# Until a member takes its next step, the state after a round is in no bucket.
LAST = 2
TORCHFT = Setting(rounds=LAST, timeout_seconds=30.0, reruns=3, front_end="torchft")
KEEPER = LAST % TORCHFT.replicas
EVERY = range(TORCHFT.replicas)


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield


def ended(committed: int, ranks: Sequence[int], *, stops: bool = False) -> Iterator[World]:
    """`ranks` are killed, or told to stop, at different steps after the commit of a round."""
    for step in range(0, 48, 4):
        events = [Event(step, rank, not stops, not stops, stops=stops, committed=committed) for rank in ranks]
        yield explore(TORCHFT, Recorded([]), events)


def test_torchfts_members_end_after_a_commit_and_the_round_is_replayed() -> None:
    cases = {
        "all are killed": partial(ended, 1, EVERY),
        "all are killed in the last round": partial(ended, LAST, EVERY),
        "all are told to stop": partial(ended, LAST, EVERY, stops=True),
        "the last keeper is killed": partial(ended, LAST, [KEEPER]),
    }
    waits = DEFECTS["the state of the last round is waited for"]
    for name, worlds in cases.items():
        found = list(worlds())
        assert [world.problems for world in found if world.problems] == [], name
        assert any(world.seen["logged: replayed"] for world in found), name
        with waits.put_back():
            assert any(world.problems for world in worlds()), name


def test_random_schedules_keep_the_invariants() -> None:
    for seed in range(20 * seeds_factor()):
        assert run_seed(seed, "torchft")[1].problems == [], f"seed {seed}"
