"""Time-outs, threads and damage in the simulated bucket: what random schedules found, each as one schedule."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from muster.contract.run.commit import Commit
from muster.replica.errors import RendezvousError
from muster.replica.store.transport import StoreUnavailableError
from muster.replica.wire import keys
from tests.exploration.schedules import Event, Randomly, explore, fair, finish, world_of
from tests.exploration.simulated import simulated
from tests.exploration.world import Choices, Process, Setting, World, ended_well
from tests.support.rendezvous_keys import of_round

HEADER, VALUES = 40, 4200  # a byte of each


@pytest.fixture(autouse=True)
def _simulated() -> Iterator[None]:
    with simulated():
        yield


def in_many_orders(setting: Setting, number: int, events: tuple[Event, ...] = ()) -> list[World]:
    """The same run in random orders of its steps."""
    worlds = []
    for seed in range(number):
        rng = random.Random(seed)  # noqa: S311 - has to be repeatable, guards nothing
        worlds.append(explore(setting, Randomly(rng), events, Choices(rng)))
    return worlds


def test_a_replica_that_commits_at_its_time_out_still_reduces_the_round() -> None:
    # Rank 2 is dead, and the window is longer than the time-out: a quorum commits when it has no time left.
    setting = Setting(rounds=2, grace_seconds=100.0, timeout_seconds=5.0)
    for world in in_many_orders(setting, 20, (Event(0, 2, kills=True),)):
        assert world.problems == []
        assert world.store.exists(keys.commit(2))


def test_a_member_that_is_superseded_at_the_time_out_leaves_the_others_their_quorum() -> None:
    # Rank 3 is dead, so all wait until the time-out. Rank 1 is replaced meanwhile: its first process must not count.
    setting = Setting(4, rounds=1, grace_seconds=100.0, timeout_seconds=5.0)
    events = (Event(0, 3, kills=True), Event(50, 1, kills=True, starts=True, reruns=True))
    world = explore(setting, fair, events)
    assert world.problems == []
    commit = Commit.from_json(world.store.written[keys.commit(1)], keys.commit(1))
    assert keys.contribution(1, 1, 1) in world.store.written
    assert (1, 1) not in {(member.rank, member.epoch) for member in commit.members}


def test_the_initial_parameters_are_uploaded_by_another_before_the_time_out_ends_the_run() -> None:
    setting = Setting(rounds=1, timeout_seconds=5.0)
    world = world_of(setting)
    try:
        first, *_ = [world.start(rank) for rank in range(3)]
        while not first.label.startswith(f"create {keys.SNAPSHOTS}"):
            first.run()
        world.kill(first)
        finish(world, fair)
        assert world.problems == []
        assert world.store.exists(keys.commit(1))
        assert world.seconds < 2 * setting.timeout_seconds
    finally:
        world.end()


def test_more_damaged_shards_than_threads_are_all_computed_again() -> None:
    setting = Setting(rounds=2, connections=2, count=2048, shard_bytes=1100, poisoned_at=VALUES)
    setting = replace(setting, poisoned=(of_round(keys.REDUCED, 1),))
    for world in in_many_orders(setting, 20):
        assert world.problems == []
        assert world.seen["logged: damaged-shard"] > 2


def test_a_header_that_is_damaged_in_transit_excludes_no_sender() -> None:
    # Requests fail so often that some header arrives damaged; the same world says which ones.
    worlds = in_many_orders(Setting(rounds=3, fault_rate=0.1), 30)
    assert sum(world.seen["damaged in transit: contributions"] for world in worlds) > 20
    for world in worlds:
        assert world.problems == []
        assert not world.seen["logged: excluded"]


def test_a_header_that_is_damaged_in_the_bucket_excludes_its_sender() -> None:
    setting = Setting(rounds=2, poisoned=(keys.contribution(1, 1, 1),), poisoned_at=HEADER)
    world = explore(setting, fair)
    assert world.problems == []
    assert world.seen["logged: excluded"] > 0


def test_a_shard_that_is_damaged_in_transit_is_read_again_and_not_computed() -> None:
    world = world_of(Setting(rounds=1, fault_rate=1.0), Choices())
    # The only fault: the first request for another member's shard.
    reached = "damaged in transit: reduced"

    def once(process: Process, _: tuple[str, ...]) -> str | None:
        is_first = process.rank == 0 and process.label.startswith("read reduced/") and not world.seen[reached]
        return "damaged" if is_first else None

    world.fault = once  # type: ignore[method-assign]
    requests: list[str] = []
    world.trace = requests
    try:
        for rank in range(3):
            world.start(rank)
        finish(world, fair)
    finally:
        world.end()
    assert world.problems == []
    assert world.seen[reached] == 1
    after = requests[next(at for at, line in enumerate(requests) if "r0a1.1   read reduced/" in line) + 1 :]
    assert not [line for line in after if "r0a1.1   read contributions/" in line]


def test_a_shard_that_cannot_be_repaired_ends_the_reader_and_makes_no_second_state() -> None:
    # Rank 1 makes shard 0 of round 1 from its own sound values; both objects are damaged in the bucket.
    damaged = (keys.contribution(1, 1, 1), keys.reduced(1, 0, 0))
    setting = Setting(rounds=1, poisoned=damaged, poisoned_at=VALUES, timeout_seconds=30.0)
    world = explore(setting, fair)
    assert not [problem for problem in world.problems if problem.startswith("two ")]
    assert not world.store.exists(keys.commit(1, 1))
    errors = [process.error for process in world.processes]
    assert errors[1] is None
    for rank in (0, 2):
        assert isinstance(errors[rank], RendezvousError)
        assert "is damaged, and so are contributions from which it was computed (rank 1: " in str(errors[rank])


def test_a_joiner_that_finds_only_a_damaged_snapshot_says_so() -> None:
    setting = Setting(rounds=3, snapshot_rounds=1, poisoned=(of_round(keys.SNAPSHOTS, 2),), poisoned_at=VALUES)
    world = world_of(setting)
    try:
        for rank in range(3):
            world.start(rank)
        finish(world, fair)
        assert world.problems == []
        assert keys.snapshot(1, "shared", 0) in world.store.deleted
        joiner = world.start(0, reruns=True)
        finish(world, fair)
    finally:
        world.end()
    assert isinstance(joiner.error, RendezvousError)
    assert "snapshots/00000/00000002-shared is damaged: the checksum of block 0 does not match" in str(joiner.error)


def test_a_replica_that_cannot_reach_the_bucket_ends_and_its_rerun_joins_again() -> None:
    # Longer than all retries of a request take.
    setting = Setting(rounds=3, reruns=9)
    world = explore(setting, fair, (Event(30, 1, cuts_off=60.0),))
    assert world.problems == []
    assert isinstance(next(process for process in world.processes if process.rank == 1).error, StoreUnavailableError)
    assert world.seen["rerun after a failure"] >= 1


def test_without_a_quorum_all_time_out_and_their_reruns_finish_when_it_is_back() -> None:
    setting = Setting(rounds=2, min_participants=3, timeout_seconds=20.0, reruns=9)
    world = explore(setting, fair, (Event(12, 2, kills=True, starts=True, after_seconds=70.0),))
    assert world.problems == []
    assert world.seen["ended: no quorum in time"] >= 2
    assert world.seen["ended: well"] == 3


def test_a_request_that_takes_effect_after_its_process_died_changes_no_committed_round() -> None:
    effects = 0
    events = (Event(40, 1, kills=True, starts=True, reruns=True), Event(60, 0, kills=True, starts=True))
    for world in in_many_orders(Setting(rounds=3, fault_rate=0.1), 25, events):
        assert world.problems == []
        effects += world.seen["late effect of a process that has ended"]
    assert effects > 0


def test_a_joiner_computes_a_round_whose_members_all_died_before_they_reduced_it() -> None:
    world = world_of(Setting(rounds=2))
    try:
        members = [world.start(rank) for rank in range(3)]
        while any(not member.label.startswith(f"create {keys.REDUCED}") for member in members):
            held = [member for member in members if member.label.startswith(f"create {keys.REDUCED}")]
            world.take_step(fair(world, [member for member in members if member not in held]))
        for member in members:
            world.kill(member)
        assert world.store.exists(keys.commit(1))
        for rank in range(3):
            world.start(rank, reruns=True)
        finish(world, fair)
        assert world.problems == []
        assert world.store.exists(keys.commit(2))
        # No time-out ended the wait for the members.
        assert world.seconds < 60
    finally:
        world.end()


def test_a_rerun_of_a_diverged_replica_counts_although_every_one_is_needed() -> None:
    world = explore(Setting(min_participants=3, declines=(2, 2), reruns=1, timeout_seconds=30.0), fair)
    assert world.problems == []
    assert world.seen["ended: diverged"] == 1
    assert all(ended_well(world.processes, rank) for rank in range(3))
