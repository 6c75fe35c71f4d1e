"""Races that real timing would hardly ever hit: a process is held before one call until the test releases it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

import pytest

from muster.contract.run.commit import Commit
from muster.replica.errors import FencedError
from muster.replica.wire import keys
from tests.exploration.activities import Killed
from tests.exploration.schedules import explore, fair, finish, world_of
from tests.exploration.simulated import simulated
from tests.exploration.world import Process, Setting, World
from tests.support.rendezvous_keys import is_like, of_round, round_of


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with simulated():
        yield


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = world_of(getattr(request, "param", Setting(rounds=3, snapshot_rounds=2)))
    try:
        yield world
    finally:
        world.end()


def go_on(world: World, until: Callable[[], bool], holding: tuple[Process, ...] = ()) -> None:
    """Let all but those held take steps, fairly, until something is the case."""
    for _ in range(5_000):
        if until():
            return
        living = [process for process in world.living if process not in holding]
        assert living, "no process is left that could make it true"
        world.take_step(fair(world, living))
    pytest.fail("it never came")


def bring_before(world: World, process: Process, call: str) -> None:
    """Stop `process` just before it makes `call`; the others go on meanwhile."""
    go_on(world, lambda: is_like(process.label, call))


def commit_of(world: World, round_: int) -> Commit:
    key = keys.commit(round_)
    return Commit.from_json(world.store.written[key], key)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_commit_race_between_all_members(order: tuple[int, ...]) -> None:
    # No member sees another's commit before it tries its own: all contribute, then each checks the quorum alone.
    world = world_of(Setting(rounds=1, min_participants=3))
    try:
        processes = [world.start(rank) for rank in range(3)]
        for process in processes:
            while not process.label.startswith("read contributions"):
                process.run()
                if process.wakes_at is not None:
                    world.take_step(fair(world, world.living))
        for process in processes:
            while not process.label.startswith(f"create {keys.commit(1)}"):
                process.run()
        for rank in order:
            processes[rank].run()
        assert world.store.creates[keys.commit(1)] == 1
        finish(world, fair)
        assert world.problems == []
        assert [member.rank for member in commit_of(world, 1).members] == [0, 1, 2]
        assert all(process.left_out == 0 for process in processes)
    finally:
        world.end()


@pytest.mark.parametrize("first_attempt_first", [True, False])
def test_two_replicas_claiming_one_rank(world: World, first_attempt_first: bool) -> None:
    twins = [world.start(0), world.start(0, reruns=True)]
    others = (world.start(1), world.start(2))
    for twin in twins:
        while twin.label != f"create {keys.claim(0, 1)}":
            twin.run()
    for twin in twins if first_attempt_first else reversed(twins):
        twin.run()
    finish(world, fair)
    assert world.problems == []
    older, newer = twins
    assert isinstance(older.error, FencedError)
    assert newer.error is None
    assert {others[0].error, others[1].error} == {None}
    # The newer attempt's claim is the last, whichever was faster; no commit names the older one.
    for round_ in range(1, world.setting.rounds + 1):
        assert {member.attempt for member in commit_of(world, round_).members if member.rank == 0} <= {2}


def test_straggler_arriving_after_the_commit(world: World) -> None:
    straggler, *_ = [world.start(rank) for rank in range(3)]
    bring_before(world, straggler, f"create {of_round(keys.CONTRIBUTIONS, 2)}")
    go_on(world, lambda: world.store.exists(keys.commit(2)), holding=(straggler,))
    finish(world, fair)
    assert world.problems == []
    assert straggler.left_out == 1
    assert commit_of(world, 2).absent == (0,)
    assert [member.rank for member in commit_of(world, 3).members] == [0, 1, 2]


@pytest.mark.parametrize("world", [Setting(rounds=5, snapshot_rounds=2, count=8192)], indirect=True)
def test_owner_dies_after_half_its_snapshot_shards(world: World) -> None:
    owner, *_ = [world.start(rank) for rank in range(3)]
    own: list[str] = []

    def half() -> bool:
        if is_like(owner.label, f"create {of_round(keys.SNAPSHOTS, 2)}") and owner.label not in own:
            own.append(owner.label)
        return len(own) == 6

    go_on(world, half)
    world.kill(owner)
    successor = world.start(0, reruns=True)
    finish(world, fair)
    assert world.problems == []
    assert successor.error is None
    # A replica that replays the round completes its snapshot; otherwise it would be missing for ever.
    assert world.store.creates[keys.manifest(2)] == 1
    assert all(world.store.creates[label.removeprefix("create ")] == 1 for label in own)


@pytest.mark.parametrize("world", [Setting(rounds=5, snapshot_rounds=2)], indirect=True)
def test_owner_dies_before_its_reduced_shard_and_no_rerun_comes(world: World) -> None:
    owner, *others = [world.start(rank) for rank in range(3)]
    bring_before(world, owner, f"create {of_round(keys.REDUCED, 3)}")
    taken_over = owner.label.removeprefix("create ")
    world.kill(owner)
    finish(world, fair)
    assert world.problems == []
    assert isinstance(owner.error, Killed)
    assert world.store.creates[taken_over] == 1
    assert [other.left_out for other in others] == [0, 0]


@pytest.mark.parametrize("world", [Setting(rounds=5, snapshot_rounds=2, count=8192)], indirect=True)
def test_rerun_during_a_snapshot(world: World) -> None:
    first, second, _ = [world.start(rank) for rank in range(3)]
    bring_before(world, first, f"create {of_round(keys.SNAPSHOTS, 2)}")
    # The rerun of rank 1 joins while the snapshot has some of its shards and no manifest.
    world.kill(second)
    rerun = world.start(1, reruns=True)
    go_on(world, lambda: rerun.label.startswith("create contributions"), holding=(first,))
    finish(world, fair)
    assert world.problems == []
    assert rerun.error is None
    assert world.store.creates[keys.manifest(2)] == 1


@pytest.mark.parametrize("world", [Setting(rounds=6, snapshot_rounds=1)], indirect=True)
@pytest.mark.parametrize(
    "call",
    [
        f"read {of_round(keys.REDUCED, 2)}",
        f"read {of_round(keys.CONTRIBUTIONS, 2)}",
        f"create {of_round(keys.REDUCED, 2)}",
    ],
)
def test_deletion_against_a_lagging_reader(world: World, call: str) -> None:
    reader, *_ = [world.start(rank) for rank in range(3)]
    bring_before(world, reader, call)
    gone = keys.contribution(2, 1, 1)
    go_on(world, lambda: gone in world.store.deleted, holding=(reader,))
    finish(world, fair)
    assert world.problems == []
    assert reader.error is None
    assert reader.left_out >= 1
    assert any(is_like(key, of_round(keys.REDUCED, 2)) for key in world.store.deleted)


@pytest.mark.parametrize("world", [Setting(rounds=7, snapshot_rounds=1)], indirect=True)
def test_deletion_against_a_joiner_that_reads_the_snapshot(world: World) -> None:
    for rank in (0, 1):
        world.start(rank)
    go_on(world, lambda: world.store.exists(keys.manifest(2)))
    joiner = world.start(2)
    bring_before(world, joiner, f"read {keys.SNAPSHOTS}")
    loaded = joiner.label.removeprefix("read ")
    go_on(world, lambda: loaded in world.store.deleted, holding=(joiner,))
    finish(world, fair)
    assert world.problems == []
    assert joiner.error is None


# Damage in the part of rank 2's contribution that rank 2 reduces itself: it has its own values in memory.
_DAMAGED = f"{keys.contributions_of(2)}00000002"


@pytest.mark.parametrize(
    "world", [Setting(rounds=3, snapshot_rounds=2, poisoned=(_DAMAGED,), poisoned_at=4200)], indirect=True
)
def test_a_round_that_the_others_have_applied_and_deleted_is_not_amended(world: World) -> None:
    late, *others = [world.start(rank) for rank in range(3)]
    go_on(world, lambda: world.store.exists(keys.commit(2)))
    bring_before(world, late, f"read {keys.REDUCED}")
    reduced = late.label.removeprefix("read ")
    # The process that follows it deletes its share of the round: this shard, and no contribution of the others. They
    # have ended by the time that a complete snapshot covers the round.
    heir = world.start(0, reruns=True)
    go_on(world, lambda: heir.label == f"create {keys.manifest(2)}", holding=(late,))
    go_on(world, lambda: all(other.ended for other in others), holding=(late, heir))
    go_on(world, lambda: reduced in world.store.deleted, holding=(late,))
    assert not any(key.startswith(_DAMAGED) for key in world.store.deleted)
    finish(world, fair)
    assert world.problems == []
    assert isinstance(late.error, FencedError)
    assert not world.store.exists(keys.commit(2, 1))


@pytest.mark.parametrize("kind", [keys.REDUCED, keys.CONTRIBUTIONS])
def test_corrupted_objects_reach_no_parameters(kind: str) -> None:
    # The first: every reader computes the shard anew. The second: the sender's values are left out by an amendment.
    damaged = of_round(kind, 2) if kind == keys.REDUCED else f"{keys.contributions_of(1)}00000002"
    world = explore(Setting(rounds=4, snapshot_rounds=2, poisoned=(damaged,)), fair)
    assert world.problems == []
    assert any(world.store.written[key] != body for key, body in world.sound.items())
    assert commit_of(world, 3).excluded_total == (kind == keys.CONTRIBUTIONS)
    assert world.store.exists(keys.commit(2, 1)) == (kind == keys.CONTRIBUTIONS)


@pytest.mark.parametrize("hour", [-3_600.0, 3_600.0])
def test_clock_skew_of_an_hour(hour: float) -> None:
    setting = Setting(rounds=4, snapshot_rounds=2)
    plain = explore(setting, fair)
    skewed = explore(replace(setting, skew_seconds=hour), fair)
    assert plain.problems == skewed.problems == []
    # Not only the same end: the same objects, byte for byte but for the claims' nonces, in the same virtual time.
    for key, body in plain.store.written.items():
        assert key.startswith("claims/") or skewed.store.written[key] == body, key
    assert skewed.seconds == plain.seconds


def test_what_is_retained_when_all_are_in_step() -> None:
    world = explore(Setting(rounds=10, snapshot_rounds=2), fair)
    assert world.problems == []
    left = [key for key in world.store.written if world.store.exists(key)]
    data = [key for key in left if key.startswith((keys.CONTRIBUTIONS, keys.REDUCED))]
    # The snapshot of round 8 covers all rounds up to its own, that of round 10 is not sealed yet; what decides stays.
    assert {round_of(key) for key in data} == {9, 10}
    assert {round_of(key) for key in left if key.startswith(keys.SNAPSHOTS)} == {8, 10}
    assert sum(key.startswith("commits/") for key in left) == 10


def test_a_dead_rank_holds_one_interval_longer_and_no_more() -> None:
    setting = Setting(rounds=10, snapshot_rounds=2)
    world = world_of(setting)
    try:
        victim, *_ = [world.start(rank) for rank in range(3)]
        bring_before(world, victim, f"create {of_round(keys.CONTRIBUTIONS, 3)}")
        world.kill(victim)
        finish(world, fair)
        assert world.problems == []
        left = [key for key in world.store.written if world.store.exists(key) and key.startswith(keys.REDUCED)]
        assert {round_of(key) for key in left} == {7, 8, 9, 10}
    finally:
        world.end()
