"""Rounds over several places: what moves between them, and what is lost where one of them or a carrier is lost.

The invariants are those of every round (tests/exploration/judge.py): the same bytes, nothing counts twice, no state is
set back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from muster.contract.run.notices import NOTICES, Notice, NoticeKind
from muster.replica.codecs import codec_named
from muster.replica.replica_errors import FencedError
from muster.replica.wire import rendezvous_keys
from tests.exploration.activities import Killed
from tests.exploration.draws import run_seed
from tests.exploration.judge import crossed_too_much
from tests.exploration.schedules import Event, bring_before, explore, fair, go_on, played
from tests.exploration.simulated import simulated
from tests.exploration.world import RUN, Process, Setting, World
from tests.support.rendezvous_keys import of_round

GRACE_SECONDS = 30.0
HOME_AND_OREGON = ("home", "home", "oregon", "oregon")
OREGON_AND_TOKYO = ("oregon", "oregon", "tokyo", "tokyo")
ALL_THREE = ("home", "oregon", "oregon", "tokyo")
SUM = of_round(rendezvous_keys.SUMS, 2)
MEAN = of_round(rendezvous_keys.REDUCED, 2)


@pytest.fixture(autouse=True)
def _small() -> Iterator[None]:
    with simulated():
        yield


def setting_of(where: tuple[str, ...], **fields: object) -> Setting:
    usual = Setting(
        len(where), min_participants=1, rounds=4, snapshot_rounds=2, grace_seconds=GRACE_SECONDS, connections=4
    )
    return replace(usual, where=where, latency_seconds=0.15, **fields)  # type: ignore[arg-type]


def started(world: World) -> list[Process]:
    return [world.start(rank) for rank in range(world.setting.replicas)]


def members(world: World, round_: int) -> list[int]:
    return [member.rank for member in world.last_commit(round_).members]


def test_each_place_sends_and_receives_a_mean_once_however_many_replicas_it_has() -> None:
    for where in (HOME_AND_OREGON, OREGON_AND_TOKYO, ALL_THREE, ("home", *["oregon"] * 4, "tokyo", "tokyo", "home")):
        world = explore(setting_of(where), fair)
        assert world.problems == []
        assert crossed_too_much(world) == []
        assert {place for place, _, _ in world.crossed} == set(where) - {"home"}
        assert world.last_commit(4).crossed_bytes == pytest.approx(sum(world.crossed.values()), rel=0.1)
        assert not world.seen["logged: take-over"]


def test_a_continuation_counts_what_its_own_rounds_move() -> None:
    with played(setting_of(OREGON_AND_TOKYO)) as world:
        first = started(world)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(2)))
        before, trainer = world.last_commit(2).crossed_bytes, world.trainer
        for process in first:
            world.kill(process)
        world.trainer = lambda process, context: trainer(process, replace(context, rounds_before=2))
        started(world)
    assert world.last_commit(4).crossed_bytes == before, "two rounds of the run before, and two of its own"


def test_replicas_at_one_place_make_the_mean_of_a_flat_round_wherever_that_is() -> None:
    world = explore(setting_of(("oregon", "oregon", "oregon")), fair)
    assert world.problems == [], "that of a round at one place"
    assert not any(key.startswith(rendezvous_keys.SUMS) for key in world.store.written)


@pytest.mark.parametrize("algorithm", ["delayed", "eager", "fragments", "coded", "sparse", "coded, far"])
def test_every_algorithm_trains_over_places(algorithm: str) -> None:
    chosen = {"front_end": "diloco", "algorithm": algorithm, "statistics": 96}
    fields = {"coded": "int8", "sparse": "topk2-64", "coded, far": "bf16"}
    codec, fragments = fields.get(algorithm, "fp32"), 2 if algorithm == "fragments" else 1
    world = explore(setting_of(ALL_THREE, **chosen, codec=codec, fragments=fragments), fair)
    assert world.problems == []
    assert codec_named(codec).loses or crossed_too_much(world) == []


def test_another_member_takes_over_for_a_carrier_that_dies_before_it_stores_a_sum() -> None:
    for where in (HOME_AND_OREGON, OREGON_AND_TOKYO):
        with played(setting_of(where)) as world:
            carrier = started(world)[2 if where == HOME_AND_OREGON else 1]
            bring_before(world, carrier, f"create {SUM}")
            world.kill(carrier)
            go_on(world, lambda world=world: world.store.exists(rendezvous_keys.commit(3)))  # type: ignore[misc]
        assert members(world, 2) == [0, 1, 2, 3], "what it has given counts"
        assert world.seconds < 2 * GRACE_SECONDS


def test_another_member_brings_the_mean_for_a_carrier_that_dies_before_it_does() -> None:
    with played(setting_of(HOME_AND_OREGON)) as world:
        carrier = started(world)[2]
        bring_before(world, carrier, f"create {MEAN}*in oregon")
        world.kill(carrier)
        began, near = world.seconds, world.near["oregon"].written
        mean = {key for key in world.store.written if key.startswith(f"{rendezvous_keys.REDUCED}00000/00000002")}
        go_on(world, lambda: mean <= near.keys())
        assert world.seconds - began < GRACE_SECONDS / 2, "later than its turn"
    assert members(world, 2) == [0, 1, 2, 3]


def test_two_carriers_at_once_store_one_sum_and_one_mean() -> None:
    # Each takes itself for the owner's successor: the owner was only slow.
    with played(setting_of(("home", "oregon", "oregon", "oregon"))) as world:
        carriers = started(world)[1:]
        bring_before(world, carriers[0], f"create {SUM}")
        sum_ = carriers[0].label.removeprefix("create ")
        go_on(world, lambda: world.store.exists(sum_), holding=(carriers[0],))
    assert world.store.creates[sum_] == 1
    assert members(world, 2) == [0, 1, 2, 3]
    assert all(process.error is None for process in world.processes)


@pytest.mark.parametrize("where", [HOME_AND_OREGON, OREGON_AND_TOKYO, ALL_THREE])
def test_a_place_that_goes_dark_before_its_sum_is_left_out_after_a_grace_window(where: tuple[str, ...]) -> None:
    with played(setting_of(where, clusters=((0, len(where) - 1),))) as world:
        started(world)
        dark = [process for process in world.processes if process.place == "oregon"]
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(2)))
        for process in dark:
            world.kill(process)
        began = world.seconds
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(3)))
        assert world.seconds - began < 1.3 * GRACE_SECONDS, "the next round does not wait for it again"
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(4)))
    # The control plane reads no amendments, so the next round says whom the last one has left out.
    reported = {Notice.parse(key) for key in world.store.written if key.startswith(NOTICES)}
    assert reported >= {Notice(RUN, NoticeKind.MISSING, process.rank, None, "3") for process in dark}
    rest = [rank for rank, place in enumerate(where) if place != "oregon"]
    assert members(world, 2) == rest
    assert {process.rank for process in dark}.isdisjoint(world.last_commit(3).absent)
    assert world.last_commit(2).absent == tuple(process.rank for process in dark)


def test_a_place_that_goes_dark_before_any_of_its_members_makes_the_mean_is_left_out() -> None:
    with played(setting_of(HOME_AND_OREGON)) as world:
        started(world)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(2)))
        for process in world.processes[:2]:
            world.kill(process)
    assert members(world, 2) == members(world, 4) == [2, 3]


def test_a_place_that_goes_dark_behind_its_sum_counts_and_costs_one_grace_window() -> None:
    with played(setting_of(HOME_AND_OREGON)) as world:
        started(world)
        go_on(world, lambda: all(world.store.exists(key) for key in sums_of_round(world, 2, 4)))
        for process in world.processes[2:]:
            world.kill(process)
        began = world.seconds
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(3)))
        assert world.seconds - began < 1.3 * GRACE_SECONDS
    assert members(world, 2) == [0, 1, 2, 3]
    assert members(world, 3) == [0, 1]


def sums_of_round(world: World, round_: int, number: int) -> list[str]:
    """The keys of so many shards of oregon's sum; of those that are not there any."""
    found = [key for key in world.store.written if f"/{round_:08d}-oregon" in key]
    return found + ["missing"] * (number - len(found))


def test_a_late_maker_makes_no_second_mean_where_its_place_was_left_out_and_the_round_deleted() -> None:
    with played(setting_of(("home", "oregon", "oregon"), rounds=8, snapshot_rounds=1)) as world:
        late = started(world)[0]
        bring_before(world, late, f"create {MEAN}")
        shard = late.label.removeprefix("create ")
        go_on(world, lambda: f"{shard[:-3]}001" in world.store.deleted, holding=(late,))
    assert members(world, 2) == [1, 2]
    assert late.error is None
    assert late.left_out


def test_a_mean_that_comes_as_its_readers_give_up_is_read_at_home() -> None:
    # One of two carriers is dead, and the next round has begun before the other one's turn to bring its shards.
    with played(setting_of(("home", "oregon", "oregon"))) as world:
        maker, carrier, _ = started(world)
        bring_before(world, maker, f"create {MEAN}")
        world.kill(carrier)
        maker.stall(GRACE_SECONDS - 3)
    assert members(world, 2) == [0, 1, 2]
    assert not world.seen["logged: fell-forward"]


def test_a_process_that_makes_no_shard_learns_of_an_amendment_as_its_peer_does() -> None:
    # Two replicas at home are killed and replay the round; of the one with two processes only one makes the shard.
    _, world = run_seed(60573, "places")
    assert world.problems == []
    assert world.store.exists(rendezvous_keys.commit(2, 1))


def test_a_process_whose_peer_is_gone_falls_forward_once_the_round_is_deleted() -> None:
    # The peer makes the only shard and dies; a process that does not know that their rank was claimed waits for it.
    _, world = run_seed(414084, "places")
    assert world.problems == []


def test_two_places_that_go_dark_are_both_left_out() -> None:
    # The round is amended, and perhaps once more.
    with played(setting_of(("home", "oregon", "tokyo"))) as world:
        started(world)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(2)))
        for process in world.processes[1:]:
            world.kill(process)
    assert members(world, 2) == members(world, 4) == [0]


def test_a_round_is_amended_for_damage_and_for_a_dark_place() -> None:
    damaged = f"oregon:{rendezvous_keys.contributions_of(1)}00000002"
    with played(setting_of(("home", "oregon", "oregon", "tokyo"), poisoned=(damaged,), poisoned_at=5300)) as world:
        started(world)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(2)))
        world.kill(world.processes[3])
    commit = world.last_commit(2)
    assert (members(world, 2), [item.rank for item in commit.excluded], commit.absent) == ([0, 2], [1], (3,))


def test_a_place_that_was_cut_off_comes_back_left_out_and_joins_again() -> None:
    with played(setting_of(HOME_AND_OREGON, rounds=8)) as world:
        started(world)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(2)))
        back = world.processes[2:]
        for process in back:
            process.stall(3 * GRACE_SECONDS)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(4)))
    assert members(world, 3) == [0, 1]
    assert all(process.error is None and process.left_out for process in back)
    assert world.states[8].known.size, "they end with the others' state"


def test_a_place_that_was_cut_off_finds_its_seats_filled_and_itself_fenced() -> None:
    with played(setting_of(HOME_AND_OREGON, rounds=8, moves=True)) as world:
        started(world)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(2)))
        back = world.processes[2:]
        for process in back:
            process.stall(6 * GRACE_SECONDS)
        # By the ladder: one of the two now trains at home.
        moved = [world.start(process.rank, reruns=True) for process in back]
    assert [process.place for process in moved] == ["oregon", "home"]
    assert all(isinstance(process.error, FencedError) for process in back)
    assert all(process.error is None for process in moved)


def test_a_place_that_cannot_reach_the_run_ends_its_processes_and_their_reruns_join() -> None:
    setting = setting_of(HOME_AND_OREGON, rounds=6, reruns=9)
    world = explore(setting, fair, [Event(60, 0, parts="oregon", seconds=90.0)])
    assert world.problems == []
    assert world.seen["ended: S3 unavailable"]


def test_what_a_places_bucket_has_lost_or_damaged_of_the_mean_is_read_at_home() -> None:
    damaged = f"oregon:{rendezvous_keys.REDUCED}*/00000002"
    world = explore(setting_of(HOME_AND_OREGON, poisoned=(damaged,), poisoned_at=4200), fair)
    assert world.problems == []
    assert world.seen["damaged in the bucket: reduced"]
    assert members(world, 2) == [0, 1, 2, 3]


def test_a_contribution_that_its_places_bucket_has_lost_is_left_out() -> None:
    with played(setting_of(HOME_AND_OREGON)) as world:
        started(world)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(2)))
        lost = rendezvous_keys.contribution_part(rendezvous_keys.contribution(2, 3, 1), 0)
        del world.near["oregon"].objects[lost]
        world.lost.add(3)
    commit = world.last_commit(2)
    assert [(item.rank, "its values are gone" in item.reason) for item in commit.excluded] == [(3, True)]
    assert members(world, 2) == [0, 1, 2]
    assert 3 in world.last_commit(2).expected


def test_a_place_whose_members_were_all_left_out_goes_on_with_copies_of_the_mean() -> None:
    with played(setting_of(HOME_AND_OREGON, rounds=6)) as world:
        started(world)
        for process in world.processes[2:]:
            bring_before(world, process, f"create {of_round(rendezvous_keys.CONTRIBUTIONS, 3)}")
            process.stall(2 * GRACE_SECONDS)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(4)))
    assert members(world, 3) == [0, 1]
    assert {key for key in world.store.written if key.startswith(of_round(rendezvous_keys.REDUCED, 3))} <= set(
        world.near["oregon"].written
    )
    assert all(process.left_out for process in world.processes[2:])


def test_near_objects_of_rounds_that_no_replica_needs_are_deleted() -> None:
    world = explore(setting_of(ALL_THREE, rounds=6, snapshot_rounds=1), fair)
    assert world.problems == []
    for bucket in (world.store, *world.near.values()):
        first = [key for key in bucket.written if "/00000001-" in key and not key.startswith("claims/")]
        assert first
        assert set(first) <= set(bucket.deleted)


def test_snapshots_are_written_by_members_at_home_where_there_are_any() -> None:
    with played(setting_of(HOME_AND_OREGON, rounds=3, snapshot_rounds=1)) as world:
        _, _, far, _ = started(world)
        seen: set[str] = set()

        def over() -> bool:
            seen.add(far.label.split("/")[0])
            return far.ended

        go_on(world, over)
    assert "create snapshots" not in seen
    assert isinstance(far.error, Killed) is False
