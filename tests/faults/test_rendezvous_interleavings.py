"""Every request to S3 is a step, every order of steps may happen, and a process may end at any of them.

The invariants are in tests/exploration/judge.py: at most one commit per round; all who apply a round apply the same
bytes and hold the same state; no contribution counts twice, or without reason not at all; no replica waits for ever
while a quorum lives; nothing that is needed is deleted. `make explore-rendezvous` runs as many schedules as one likes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.exploration.activities import Killed
from tests.exploration.draws import explore_randomly, front_end_of
from tests.exploration.schedules import Delayed, Event, explore, fair
from tests.exploration.simulated import simulated
from tests.exploration.transitions import COMMON, unreached
from tests.exploration.world import Setting, World

RANDOM_SCHEDULES = 900
PAUSE = 150  # steps: longer than a round takes, so that the others pass the paused process


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with simulated():
        yield


def steps_of(world: World, rank: int) -> int:
    return sum(process.steps for process in world.processes if process.rank == rank)


def killed_at(world: World) -> list[str]:
    """The kinds of calls that the killed were about to make."""
    labels = [process.label for process in world.processes if isinstance(process.error, Killed)]
    return [" ".join(label.split("/")[0].split()) for label in labels]


def test_random_schedules_with_every_kind_of_fault_keep_the_invariants() -> None:
    seen = Counter[str]()
    for seed in range(RANDOM_SCHEDULES):
        kind = front_end_of(seed)
        # tests/faults/test_exploration.py has torchft's front end, which needs PyTorch.
        front_end = "arrays" if kind == "torchft" else kind
        world = explore_randomly(seed, front_end)
        assert world.problems == [], f"python -m tests.exploration --show {seed} --front-end {front_end}"
        seen += world.seen
    # Schedules without faults would pass as well. What needs more schedules than these is counted by `make`.
    assert unreached(seen, COMMON) == []


@pytest.mark.parametrize("replicas", [3, 4])
def test_every_schedule_with_one_paused_process_keeps_the_invariants(replicas: int) -> None:
    setting = Setting(replicas, rounds=2, snapshot_rounds=1, grace_seconds=0.5)
    plain = Delayed((), PAUSE)
    assert explore(setting, plain).problems == []
    left_out = 0
    for step in range(1, plain.steps + 1):
        world = explore(setting, Delayed((step,), PAUSE))
        assert world.problems == [], f"step {step}"
        left_out += sum(process.left_out for process in world.processes)
    assert plain.steps > 150
    assert left_out > 0


@pytest.mark.parametrize("successor", ["rerun", "restart", "none"])
def test_killed_at_every_step_of_a_run(successor: str) -> None:
    setting = Setting(rounds=3, snapshot_rounds=1)
    plain = explore(setting, fair)
    ends = Counter[str]()
    for rank in range(setting.replicas):
        for step in range(steps_of(plain, rank)):
            event = Event(step, rank, kills=True, starts=successor != "none", reruns=successor == "rerun")
            world = explore(setting, fair, [event])
            assert world.problems == [], f"rank {rank}, step {step}"
            ends.update(killed_at(world))
    assert sum(ends.values()) == sum(process.steps for process in plain.processes)
    for call in ("claims", "contributions", "commits", "reduced", "snapshots", "manifests"):
        assert ends[f"create {call}"] > 0, f"never killed before creating one of the {call}: {ends}"


def test_a_duplicate_started_at_every_step_supersedes_and_nothing_counts_twice() -> None:
    setting = Setting(rounds=2, snapshot_rounds=1)
    calls = steps_of(explore(setting, fair), 0)
    for step in range(calls):
        world = explore(setting, fair, [Event(step, 0, kills=False, starts=True, reruns=True)])
        assert world.problems == [], f"step {step}"


def test_every_peer_but_the_quorum_killed_at_every_step() -> None:
    setting = Setting(4, min_participants=2, rounds=2, snapshot_rounds=1)
    calls = steps_of(explore(setting, fair), 0)
    for step in range(calls):
        world = explore(setting, fair, [Event(step, rank, kills=True, starts=False) for rank in (0, 3)])
        assert world.problems == [], f"step {step}"
        assert world.seconds < 20 * setting.grace_seconds


def test_a_replica_that_joins_at_every_step_of_a_round() -> None:
    setting = Setting(rounds=4, snapshot_rounds=2)
    calls = steps_of(explore(setting, fair), 0)
    for step in range(calls):
        # Rank 2 starts only when rank 0 has taken so many steps.
        absent = Event(0, 2, kills=True, starts=False)
        comes = Event(step, 2, kills=False, starts=True, counted=0)
        world = explore(setting, fair, [absent, comes])
        assert world.problems == [], f"step {step}"
