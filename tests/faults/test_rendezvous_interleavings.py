"""Every request to S3 is a step, every order of steps may happen, and a process may end at any of them.

The invariants are in tests/exploration/judge.py: at most one commit per round; all who apply a round apply the same
bytes and hold the same state; no contribution counts twice, or without reason not at all; no replica waits for ever
while a quorum lives; nothing that is needed is deleted. `make explore-rendezvous` runs as many schedules as one likes,
and `make test-release` all of those here that are tried in part. Races that real timing would hardly ever hit, and what
random schedules have found, are one schedule each: a process is held before a call until the test lets it go on.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

import pytest

from muster.replica.replica_errors import FencedError, RendezvousError
from muster.replica.store.transport import StoreUnavailableError
from muster.replica.wire import rendezvous_keys
from tests.exploration.activities import Killed
from tests.exploration.draws import front_end_of, run_seed
from tests.exploration.schedules import Delayed, Event, Randomly, bring_before, explore, fair, finish, go_on, played
from tests.exploration.simulated import simulated
from tests.exploration.transitions import COMMON
from tests.exploration.world import Choices, Process, Setting, World, ended_well
from tests.support.rendezvous_keys import is_like, of_round
from tests.support.seeds import part_of, seeds_factor

RANDOM_SCHEDULES = 150
PAUSE = 150  # steps: longer than a round takes, so that the others pass the paused process
SUCCESSORS = ("rerun", "restart", "none")
VALUES = 4200  # a byte of them


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
    for seed in range(RANDOM_SCHEDULES * seeds_factor()):
        kind = front_end_of(seed)
        # Torchft's front end needs PyTorch: tests/torch has it.
        front_end = "arrays" if kind == "torchft" else kind
        world = run_seed(seed, front_end)[1]
        assert world.problems == [], f"python -m tests.exploration --show {seed} --front-end {front_end}"
        seen += world.seen
    # Schedules without faults would pass as well. What needs more schedules than these is counted by `make`.
    assert [name for name in COMMON if not seen[name]] == []


@pytest.mark.parametrize("replicas", [3, 4])
def test_schedules_with_one_paused_process_keep_the_invariants(replicas: int) -> None:
    setting = Setting(replicas, rounds=2, snapshot_rounds=1, grace_seconds=0.5)
    plain = Delayed((), PAUSE)
    assert explore(setting, plain).problems == []
    left_out = 0
    for step in part_of(range(1, plain.steps + 1)):
        world = explore(setting, Delayed((step,), PAUSE))
        assert world.problems == [], f"step {step}"
        left_out += sum(process.left_out for process in world.processes)
    assert plain.steps > 150
    assert left_out > 0


def test_killed_at_every_step_of_a_run() -> None:
    """At every second step, with another successor each time; before a release at every step with each of them."""
    setting = Setting(rounds=3, snapshot_rounds=1)
    plain = explore(setting, fair)
    ends = Counter[str]()
    kills = 0
    for rank in range(setting.replicas):
        for step in part_of(range(steps_of(plain, rank)), 2):
            turn = (rank + step) % len(SUCCESSORS)
            for successor in (SUCCESSORS[turn:] + SUCCESSORS[:turn])[: seeds_factor()]:
                event = Event(step, rank, kills=True, starts=successor != "none", reruns=successor == "rerun")
                world = explore(setting, fair, [event])
                assert world.problems == [], f"rank {rank}, step {step}, successor: {successor}"
                ends.update(killed_at(world))
                kills += 1
    assert sum(ends.values()) == kills, "some process had ended before the step at which it was to be killed"
    for call in ("claims", "contributions", "commits", "reduced", "snapshots", "manifests"):
        assert ends[f"create {call}"] > 0, f"never killed before creating one of the {call}: {ends}"


def test_what_happens_at_any_step_of_a_round_breaks_nothing() -> None:
    # Rank 2 starts only when rank 0 has taken so many steps.
    absent = Event(0, 2, kills=True, starts=False)
    cases: dict[str, tuple[Setting, Callable[[int], list[Event]]]] = {
        "a duplicate supersedes": (
            Setting(rounds=2, snapshot_rounds=1),
            lambda step: [Event(step, 0, starts=True, reruns=True)],
        ),
        "all but the quorum are killed": (
            Setting(4, min_participants=2, rounds=2, snapshot_rounds=1),
            lambda step: [Event(step, rank, kills=True) for rank in (0, 3)],
        ),
        "a replica joins": (
            Setting(rounds=4, snapshot_rounds=2),
            lambda step: [absent, Event(step, 2, starts=True, counted=0)],
        ),
    }
    for name, (setting, events) in cases.items():
        for step in part_of(range(steps_of(explore(setting, fair), 0))):
            world = explore(setting, fair, events(step))
            assert world.problems == [], f"{name}, step {step}"
            assert world.seconds < 20 * setting.grace_seconds, f"{name}, step {step}"


# --- races --------------------------------------------------------------------------------------------


def test_commit_race_between_all_members() -> None:
    # No member sees another's commit before it tries its own: all contribute, then each checks the quorum alone.
    for order in permutations(range(3)):
        with played(Setting(rounds=1, min_participants=3)) as world:
            processes = [world.start(rank) for rank in range(3)]
            for process in processes:
                while not process.label.startswith("read contributions"):
                    process.run()
                    if process.wakes_at is not None:
                        world.take_step(fair(world, world.living))
            for process in processes:
                while not process.label.startswith(f"create {rendezvous_keys.commit(1)}"):
                    process.run()
            for rank in order:
                processes[rank].run()
            assert world.store.creates[rendezvous_keys.commit(1)] == 1, order
        assert [member.rank for member in world.last_commit(1).members] == [0, 1, 2], order
        assert all(process.left_out == 0 for process in processes), order


def test_two_replicas_claiming_one_rank() -> None:
    for first in (0, 1):
        with played(Setting(rounds=3, snapshot_rounds=2)) as world:
            twins = [world.start(0), world.start(0, reruns=True)]
            others = (world.start(1), world.start(2))
            for twin in twins:
                while twin.label != f"create {rendezvous_keys.claim(0, 1)}":
                    twin.run()
            twins[first].run()
            twins[1 - first].run()
        assert isinstance(twins[0].error, FencedError), first
        assert {twins[1].error, others[0].error, others[1].error} == {None}, first
        # The newer attempt's claim is the last, whichever was faster; no commit names the older one.
        for round_ in range(1, world.setting.rounds + 1):
            assert {member.attempt for member in world.last_commit(round_).members if member.rank == 0} <= {2}


def test_owner_dies_after_half_its_snapshot_shards() -> None:
    own: list[str] = []
    with played(Setting(rounds=5, snapshot_rounds=2, count=8192)) as world:
        owner, *_ = [world.start(rank) for rank in range(3)]

        def half() -> bool:
            if is_like(owner.label, f"create {of_round(rendezvous_keys.SNAPSHOTS, 2)}") and owner.label not in own:
                own.append(owner.label)
            return len(own) == 6

        go_on(world, half)
        world.kill(owner)
        successor = world.start(0, reruns=True)
    assert successor.error is None
    # A replica that replays the round completes its snapshot; otherwise it would be missing for ever.
    assert world.store.creates[rendezvous_keys.manifest(2)] == 1
    assert all(world.store.creates[label.removeprefix("create ")] == 1 for label in own)


def test_deletion_against_a_lagging_reader() -> None:
    lagging = (
        f"read {of_round(rendezvous_keys.REDUCED, 2)}",
        f"read {of_round(rendezvous_keys.CONTRIBUTIONS, 2)}",
        f"create {of_round(rendezvous_keys.REDUCED, 2)}",
    )
    gone = rendezvous_keys.contribution(2, 1, 1)
    for call in lagging:
        with played(Setting(rounds=6, snapshot_rounds=1)) as world:
            reader, *_ = [world.start(rank) for rank in range(3)]
            bring_before(world, reader, call)
            go_on(world, lambda world=world: gone in world.store.deleted, holding=(reader,))  # type: ignore[misc]
        assert reader.error is None, call
        assert reader.left_out >= 1, call
        assert any(is_like(key, of_round(rendezvous_keys.REDUCED, 2)) for key in world.store.deleted), call


def test_deletion_against_a_joiner_that_reads_the_snapshot() -> None:
    with played(Setting(rounds=7, snapshot_rounds=1)) as world:
        for rank in (0, 1):
            world.start(rank)
        go_on(world, lambda: world.store.exists(rendezvous_keys.manifest(2)))
        joiner = world.start(2)
        bring_before(world, joiner, f"read {rendezvous_keys.SNAPSHOTS}")
        loaded = joiner.label.removeprefix("read ")
        go_on(world, lambda: loaded in world.store.deleted, holding=(joiner,))
    assert joiner.error is None


def test_a_round_that_the_others_have_applied_and_deleted_is_not_amended() -> None:
    # Damage in the part of rank 2's contribution that rank 2 reduces itself: it has its own values in memory.
    damaged = f"{rendezvous_keys.contributions_of(2)}00000002"
    setting = Setting(rounds=6, snapshot_rounds=1, poisoned=(damaged,), poisoned_at=7200)
    with played(setting) as world:
        late, owner = world.start(0), world.start(2)
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(2)))
        newcomer = world.start(1)
        bring_before(world, late, f"read {of_round(rendezvous_keys.REDUCED, 2)}")
        reduced = late.label.removeprefix("read ")
        # Two members delete the round. One has deleted this shard, the other none of the contributions.
        deletion = f"delete {rendezvous_keys.contribution(2, 0, 1)}"
        go_on(world, lambda: newcomer.label == deletion, holding=(late,))
        go_on(world, lambda: reduced in world.store.deleted, holding=(late, newcomer))
        # It finds the damage while it makes the shard again.
        go_on(world, lambda: world.store.exists(reduced), holding=(owner, newcomer))
    assert late.error is None
    assert not world.store.exists(rendezvous_keys.commit(2, 1))


def test_a_late_maker_makes_no_second_mean_of_a_round_that_was_amended_and_deleted() -> None:
    # As above, but rank 2 sleeps before it stores its shard: the others find the damage.
    damaged = f"{rendezvous_keys.contributions_of(2)}00000002"
    with played(Setting(rounds=8, snapshot_rounds=1, poisoned=(damaged,))) as world:
        *_, late = [world.start(rank) for rank in range(3)]
        bring_before(world, late, f"create {of_round(rendezvous_keys.REDUCED, 2)}")
        shard = late.label.removeprefix("create ")
        amended = shard.removesuffix("000") + "001"
        go_on(world, lambda: amended in world.store.deleted, holding=(late,))
    assert world.store.is_statement(shard)
    assert late.error is None
    assert late.left_out


def test_a_shard_that_another_process_of_the_replica_has_made_is_deleted_before_it_is_read() -> None:
    # Rank 0 has two processes, both of which need the shard that the first one makes in the second round.
    setting = Setting(
        rounds=6,
        snapshot_rounds=1,
        grace_seconds=0.5,
        timeout_seconds=60.0,
        count=1280,
        sizes=(2, 1, 1),
        front_end="diloco",
        algorithm="coded",
        codec="int8",
    )
    shard = rendezvous_keys.reduced(2, 0, 1)
    with played(setting) as world:
        late, *_ = [world.start(rank) for rank in range(3)]
        go_on(world, lambda: late.label == f"create {shard}")
        go_on(world, lambda: world.store.exists(shard), holding=tuple(world.processes[1:]))
        go_on(world, lambda: shard in world.store.deleted, holding=(late,))
    assert late.error is None
    assert world.seen["logged: fell-forward"]
    assert world.seconds < setting.timeout_seconds


def test_a_contribution_to_a_round_that_is_gone_before_its_sender_looks_leaves_no_trace() -> None:
    setting = Setting(
        rounds=8, snapshot_rounds=1, grace_seconds=0.5, codec="topk2-64", algorithm="sparse", front_end="diloco"
    )
    with played(setting) as world:
        late = world.start(0)
        for rank in (1, 2):
            world.start(rank)
        bring_before(world, late, f"create {rendezvous_keys.contribution(3, 0, 1)}")
        go_on(world, lambda: world.store.exists(rendezvous_keys.commit(3)), holding=(late,))
        given = of_round(rendezvous_keys.CONTRIBUTIONS, 3)
        bring_before(world, late, f"read {rendezvous_keys.commit(3)}")
        go_on(world, lambda: any(is_like(key, given) for key in world.store.deleted), holding=(late,))
    assert late.error is None
    assert world.seen["logged: fell-forward"]


def test_corrupted_objects_reach_no_parameters() -> None:
    # A shard: every reader computes it anew. A contribution: the sender's values are left out by an amendment.
    kinds = {of_round(rendezvous_keys.REDUCED, 2): False, f"{rendezvous_keys.contributions_of(1)}00000002": True}
    for damaged, is_amended in kinds.items():
        world = explore(Setting(rounds=4, snapshot_rounds=2, poisoned=(damaged,)), fair)
        assert world.problems == [], damaged
        assert any(world.store.written[key] != body for key, body in world.sound.items()), damaged
        assert world.last_commit(3).excluded_total == is_amended, damaged
        assert world.store.exists(rendezvous_keys.commit(2, 1)) == is_amended, damaged


def test_clock_skew_of_an_hour() -> None:
    setting = Setting(rounds=4, snapshot_rounds=2)
    plain = explore(setting, fair)
    for hour in (-3_600.0, 3_600.0):
        skewed = explore(replace(setting, skew_seconds=hour), fair)
        assert plain.problems == skewed.problems == []
        # Not only the same end: the same objects, byte for byte but for the claims' nonces, in the same virtual time.
        for key, body in plain.store.written.items():
            assert key.startswith("claims/") or skewed.store.written[key] == body, key
        assert skewed.seconds == plain.seconds


# --- time-outs and damage -----------------------------------------------------------------------------


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
        assert world.store.exists(rendezvous_keys.commit(2))


def test_a_member_that_is_superseded_at_the_time_out_leaves_the_others_their_quorum() -> None:
    # Rank 3 is dead, so all wait until the time-out. Rank 1 is replaced meanwhile: its first process must not count.
    setting = Setting(4, rounds=1, grace_seconds=100.0, timeout_seconds=5.0)
    events = (Event(0, 3, kills=True), Event(50, 1, kills=True, starts=True, reruns=True))
    world = explore(setting, fair, events)
    assert world.problems == []
    assert rendezvous_keys.contribution(1, 1, 1) in world.store.written
    assert (1, 1) not in {(member.rank, member.epoch) for member in world.last_commit(1).members}


def test_the_initial_parameters_are_uploaded_by_another_before_the_time_out_ends_the_run() -> None:
    setting = Setting(rounds=1, timeout_seconds=5.0)
    with played(setting) as world:
        first, *_ = [world.start(rank) for rank in range(3)]
        while not first.label.startswith(f"create {rendezvous_keys.SNAPSHOTS}"):
            first.run()
        world.kill(first)
    assert world.store.exists(rendezvous_keys.commit(1))
    assert world.seconds < 2 * setting.timeout_seconds


def test_more_damaged_shards_than_threads_are_all_computed_again() -> None:
    setting = Setting(rounds=2, connections=2, count=2048, shard_bytes=1100, poisoned_at=VALUES)
    setting = replace(setting, poisoned=(of_round(rendezvous_keys.REDUCED, 1),))
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


def test_a_shard_that_is_damaged_in_transit_is_read_again_and_not_computed() -> None:
    reached = "damaged in transit: reduced"
    with played(Setting(rounds=1, fault_rate=1.0), Choices()) as world:
        # The only fault: the first request for another member's shard.
        def once(process: Process, _: tuple[str, ...]) -> str | None:
            is_first = process.rank == 0 and process.label.startswith("read reduced/") and not world.seen[reached]
            return "damaged" if is_first else None

        world.fault = once  # type: ignore[method-assign]
        world.trace = requests = []
        for rank in range(3):
            world.start(rank)
    assert world.seen[reached] == 1
    after = requests[next(at for at, line in enumerate(requests) if "r0a1.1   read reduced/" in line) + 1 :]
    assert not [line for line in after if "r0a1.1   read contributions/" in line]


def test_a_shard_that_cannot_be_repaired_ends_the_reader_and_makes_no_second_state() -> None:
    # Rank 1 makes shard 0 of round 1 from its own sound values; both objects are damaged in the bucket.
    damaged = (rendezvous_keys.contribution(1, 1, 1), rendezvous_keys.reduced(1, 0, 0))
    setting = Setting(rounds=1, poisoned=damaged, poisoned_at=VALUES, timeout_seconds=30.0)
    world = explore(setting, fair)
    assert not [problem for problem in world.problems if problem.startswith("two ")]
    assert not world.store.exists(rendezvous_keys.commit(1, 1))
    errors = [process.error for process in world.processes]
    assert errors[1] is None
    for rank in (0, 2):
        assert isinstance(errors[rank], RendezvousError)
        assert "is damaged, and so are contributions" in str(errors[rank])


def test_a_joiner_that_finds_only_a_damaged_snapshot_says_so() -> None:
    setting = Setting(
        rounds=3, snapshot_rounds=1, poisoned=(of_round(rendezvous_keys.SNAPSHOTS, 2),), poisoned_at=VALUES
    )
    with played(setting) as world:
        for rank in range(3):
            world.start(rank)
        finish(world, fair)
        assert world.problems == []
        assert rendezvous_keys.snapshot(1, "shared", 0) in world.store.deleted
        joiner = world.start(0, reruns=True)
    assert isinstance(joiner.error, RendezvousError)
    assert "snapshots/00000/00000002-shared is damaged" in str(joiner.error)


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
    with played(Setting(rounds=2)) as world:
        members = [world.start(rank) for rank in range(3)]
        while any(not member.label.startswith(f"create {rendezvous_keys.REDUCED}") for member in members):
            held = [member for member in members if member.label.startswith(f"create {rendezvous_keys.REDUCED}")]
            world.take_step(fair(world, [member for member in members if member not in held]))
        for member in members:
            world.kill(member)
        assert world.store.exists(rendezvous_keys.commit(1))
        for rank in range(3):
            world.start(rank, reruns=True)
    assert world.store.exists(rendezvous_keys.commit(2))
    # No time-out ended the wait for the members.
    assert world.seconds < 60


def test_a_rerun_of_a_diverged_replica_counts_although_every_one_is_needed() -> None:
    world = explore(Setting(min_participants=3, declines=(2, 2), reruns=1, timeout_seconds=30.0), fair)
    assert world.problems == []
    assert world.seen["ended: diverged"] == 1
    assert all(ended_well(world.processes, rank) for rank in range(3))
