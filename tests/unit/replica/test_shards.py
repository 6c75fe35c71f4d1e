"""Shards of means and of snapshots: who makes and reads them, what is damaged, and how long they are kept."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from muster.contract.run.commit import Exclusion
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.parts.cut import Cut
from muster.replica.replica_errors import RendezvousError
from muster.replica.rounds import agreement, snapshots, weighted_mean
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.contribution import make_contribution
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.reduced_shards import ReducedShards, shards_for
from muster.replica.rounds.reduction import Reduction
from muster.replica.rounds.retention import Keeper, horizon
from muster.replica.rounds.round_context import RoundContext
from muster.replica.rounds.round_history import newest_snapshot
from muster.replica.rounds.round_mean import reduced_mean
from muster.replica.rounds.snapshots import Snapshots, read_manifest
from muster.replica.rounds.weighted_mean import WeightedMean
from muster.replica.statistics.statistics import Notes
from muster.replica.store.transport import ObjectMissingError, StoreDeniedError
from muster.replica.wire import blocks, rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES
from tests.support.peers import SHARDED, Faults, FaultyStore, Killed, Run, all_ended
from tests.support.rendezvous_keys import is_like, of_round
from tests.support.round_commits import commit_of

SHARDS = 6  # two for each of three members


@pytest.fixture
def sharded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(blocks, "SHARD_BYTES_AIM", 4 * SHARDED // SHARDS)
    return Run(tmp_path, count=SHARDED, rounds=2)


def test_an_owner_that_dies_between_its_shards_is_stood_in_for(sharded: Run) -> None:
    made: list[str] = []

    def die_at_the_second(key: str) -> None:
        if is_like(key, of_round(rendezvous_keys.REDUCED, 2)):
            made.append(key)
            if len(made) == 2:
                raise Killed(key)

    victim = sharded.start(1, faults=Faults(before_create=die_at_the_second))
    others = sharded.start_behind(victim, of_round(rendezvous_keys.REDUCED, 2), 0, 2)
    with all_ended([victim, *others]):
        assert isinstance(victim.join().error, Killed)
        assert {peer.parameters() for peer in others} == {sharded.replayed_by_hand()}
    assert len(list(sharded.root.glob(of_round(rendezvous_keys.REDUCED, 2) + "*"))) == SHARDS


def test_a_mean_is_divided_as_its_commit_says(sharded: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # A commit of an older version does not say it: then one shard for each member.
    monkeypatch.setattr(agreement, "shards_for", lambda *_: None)
    peers = sharded.start_all()
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {sharded.replayed_by_hand()}
    assert len(list(sharded.root.glob(of_round(rendezvous_keys.REDUCED, 2) + "*"))) == SHARDS // 2


def test_a_shard_that_is_not_there_yet_is_looked_for_again_while_others_are_read(sharded: Run) -> None:
    peers = sharded.start_all()
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {sharded.replayed_by_hand()}
    looks: Counter[str] = Counter()
    again = threading.Event()

    def late(key: str) -> None:
        looks[key] += 1
        if is_like(key, rendezvous_keys.reduced(2, 0, 1)):
            if looks[key] == 1:
                raise ObjectMissingError(key)
            again.set()
        if is_like(key, rendezvous_keys.reduced(2, 0, 0)):
            assert again.wait(10)

    context = sharded.context(FaultyStore(sharded.store, Faults(before_read=late)))
    _, mean = reduced_mean(context, sharded.commit(2), None, context.polling())
    assert np.array_equal(mean, reduced_mean(sharded.context(), sharded.commit(2), None, context.polling())[1])
    assert again.is_set()


def test_a_contribution_that_is_damaged_while_it_is_read_ahead_is_read_again(
    sharded: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weighted_mean, "CONNECTIONS", 1)
    peers = sharded.start_all()
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {sharded.replayed_by_hand()}
    read: Counter[str] = Counter()

    class Damaged(FaultyStore):
        def stream(self, key: str, start: int, stop: int, *, sizes: tuple[int, int] = (0, 0)) -> Iterator[memoryview]:
            for piece in super().stream(key, start, stop, sizes=sizes):
                read[key] += 1
                body = bytearray(piece)
                body[-1] ^= read[key] == 1
                yield memoryview(body)

    context = sharded.context(Damaged(sharded.store, Faults()))
    commit = sharded.commit(2)
    mine = make_contribution(context, Claim(0, 1, 1, 1), 2, LocalUpdate(np.ones(SHARDED, np.float32), 1.0), Notes())
    means = [
        b"".join(bytes(run) for run in WeightedMean(one, commit, range(1), mine).runs())
        for one in (context, sharded.context())
    ]
    assert means[0] == means[1]
    assert sorted(read.values()) == [2, 2]


def test_shards_that_are_not_there_leave_the_connections_to_those_that_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member has died behind its contribution: a third of the shards is missing until another takes them over."""
    monkeypatch.setattr(blocks, "SHARD_BYTES_AIM", 1)
    monkeypatch.setattr(blocks, "SHARD_BYTES_MIN", 1)
    run = Run(tmp_path, count=SHARDED * 3, rounds=1)
    peers = run.start_all()
    with all_ended(peers):
        assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}
    commit = run.commit(1)
    shards = ReducedShards(run.context(), commit).number
    assert shards > 2 * blocks.CONNECTIONS
    gone = {rendezvous_keys.reduced(1, 0, shard) for shard in range(0, shards, 3)}
    together, met = threading.Barrier(blocks.CONNECTIONS), threading.Event()

    def look(key: str) -> None:
        if key in gone:
            raise ObjectMissingError(key)
        if key.startswith(rendezvous_keys.REDUCED) and not met.is_set():
            with suppress(threading.BrokenBarrierError):
                together.wait(5)
                met.set()

    context = run.context(FaultyStore(run.store, Faults(before_read=look)))
    reduction = Reduction(context, commit, None, None)
    missing = reduction._read_all(list(range(shards)))
    assert {rendezvous_keys.reduced(1, 0, shard) for shard in missing} == gone
    assert met.is_set(), "as many are read at once as there are connections"


def test_what_is_read_side_by_side_is_over_before_its_failure_is_raised(sharded: Run) -> None:
    fails, running, over = threading.Event(), threading.Event(), threading.Event()

    def read(item: str) -> None:
        if item == "fails":
            assert running.wait(30)
            fails.set()
            raise ValueError(item)
        running.set()
        assert fails.wait(30)
        # Long after its neighbour has failed it still writes into a buffer of the round's.
        time.sleep(0.2)
        over.set()

    with pytest.raises(ValueError, match="fails"):
        sharded.context().side_by_side(read, ["fails", "runs"])
    assert over.is_set()


# --- Snapshots: cut into shards, complete only with their manifest, checked when they are read ----------------------


COUNT = 1_000


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Snapshots:
    """Shards of at most 300 values: some hold the end of the parameters and the beginning of the momentum."""
    monkeypatch.setattr(snapshots, "SHARD_BYTES_MAX", 1_200)
    return Snapshots(Run(tmp_path, snapshot_rounds=2).context(), Cut(COUNT), "layout")


def state(round_: int) -> GlobalState:
    rng = np.random.default_rng(round_)
    momentum = rng.standard_normal(COUNT).astype(np.float32) if round_ else np.zeros(COUNT, np.float32)
    return GlobalState(round_, rng.standard_normal(COUNT).astype(np.float32), momentum)


def put(kept: Snapshots, round_: int) -> None:
    kept.put(state(round_), range(kept.shards(round_)))
    kept.seal(round_)


def load(kept: Snapshots, round_: int) -> GlobalState | None:
    manifest = read_manifest(kept.context, round_)
    return None if manifest is None else kept.load(manifest)


def test_what_is_stored_in_shards_is_loaded_bit_for_bit(kept: Snapshots) -> None:
    for round_ in (0, 2):
        number = kept.shards(round_)
        kept.put(state(round_), [0, 3])
        assert kept.missing(round_) == [shard for shard in range(number) if shard not in {0, 3}]
        kept.put(state(round_), kept.missing(round_))
        assert load(kept, round_) is None, "a snapshot without its manifest is none"
        kept.seal(round_)
        loaded = load(kept, round_)
        assert loaded is not None
        assert loaded.round == round_
        assert loaded.parameters.tobytes() == state(round_).parameters.tobytes()
        assert loaded.momentum.tobytes() == state(round_).momentum.tobytes()


def test_shards_are_bounded_however_large_the_model_is() -> None:
    context = Run(Path("nowhere"), replicas=4).context()
    huge = Snapshots(context, Cut(10_000_000_000), "layout")  # 80 GB with its momentum, sixteen times a single PUT
    assert 2 * huge.cut.count * 4 / huge.shards(2) <= snapshots.SHARD_BYTES_MAX
    assert Snapshots(context, Cut(1_000), "layout").shards(2) == 1


def damage(root: Path, round_: int) -> None:
    path = root / rendezvous_keys.snapshot(round_, "shared", 1)
    body = bytearray(path.read_bytes())
    body[-2] ^= 1
    path.write_bytes(body)


def test_a_damaged_snapshot_is_passed_over_for_the_one_before(kept: Snapshots, tmp_path: Path) -> None:
    for round_ in range(1, 5):
        kept.context.store.create(rendezvous_keys.commit(round_), b"{}")
    put(kept, 2)
    put(kept, 4)
    damage(tmp_path, 4)
    found = newest_snapshot(kept.context, kept.load)
    assert found is not None
    assert found.round == 2
    damage(tmp_path, 2)
    with pytest.raises(RendezvousError, match="is damaged: the checksum of block"):
        newest_snapshot(kept.context, kept.load)


def test_a_snapshot_that_is_deleted_is_distinguished_from_one_that_never_was(kept: Snapshots, tmp_path: Path) -> None:
    put(kept, 2)
    first, second = (tmp_path / rendezvous_keys.snapshot(2, "shared", shard) for shard in (1, 2))
    first.unlink()
    first.write_bytes(second.read_bytes())
    with pytest.raises(RendezvousError, match="is damaged"):
        load(kept, 2)  # a shard in the place of another
    kept.context.store.delete([rendezvous_keys.snapshot(2, "shared", shard) for shard in (1, 3)])
    with pytest.raises(ObjectMissingError):
        load(kept, 2)
    assert load(kept, 4) is None


def test_damage_in_any_range_of_a_large_shard_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(snapshots, "READ_BYTES_MIN", 2**18)
    count = 200_000  # 13 blocks of the parameters and 12 of the momentum, in one shard
    kept = Snapshots(Run(tmp_path, replicas=1, snapshot_rounds=2).context(), Cut(count), "layout")
    kept.put(GlobalState(2, *np.random.default_rng(0).random((2, count), np.float32)), range(kept.shards(2)))
    kept.seal(2)
    assert kept.shards(2) == 1
    path = tmp_path / rendezvous_keys.snapshot(2, "shared", 0)
    body = path.read_bytes()
    damaged = {"beyond": body + b"\0"}
    for place, at in {"header": 20, "middle": len(body) // 2, "end": len(body) - 1}.items():
        damaged[place] = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    for place, content in damaged.items():
        path.unlink()
        path.write_bytes(content)
        with subtests.test(place), pytest.raises(RendezvousError, match="is damaged"):
            load(kept, 2)


# --- How far data may go, and what housekeeping does when the store refuses -----------------------------------------


def test_data_go_up_to_a_snapshot_that_everybody_has_passed() -> None:
    rows = [
        (commit_of([0, 1, 2], epochs=(1, 1, 1)), [8, 4], 8),
        (commit_of([0, 1, 2], epochs=(1, 1, 1)), [], 0),
        (commit_of([0, 1], epochs=(1, 1, 1), excluded=(Exclusion(rank=2, reason="NaN"),)), [8, 4], 8),
        # A rank that never came holds nothing; one that came and is not named holds an interval.
        (commit_of([0, 1], epochs=(1, 1, 0)), [8, 4], 8),
        (commit_of([0, 1], epochs=(1, 1, 1)), [8, 4], 4),
        (commit_of([0, 1], epochs=(1, 1, 1)), [8], 0),
    ]
    found = [(horizon(round_, complete), expected) for round_, complete, expected in rows]
    assert [number for number, (one, other) in enumerate(found) if one != other] == []


def test_a_role_that_may_not_delete_trains_on_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: FaultyStore, keys: Sequence[str]) -> None:
        raise StoreDeniedError(keys[0], "AccessDenied")

    monkeypatch.setattr(FaultyStore, "delete", refused)
    run = Run(tmp_path, rounds=5, snapshot_rounds=1)
    with caplog.at_level(logging.WARNING, "muster.replica"):
        peers = run.start_all()
        with all_ended(peers):
            assert {peer.parameters() for peer in peers} == {run.replayed_by_hand()}
    assert "event=not-swept" in caplog.text
    assert (tmp_path / rendezvous_keys.contribution(1, 0, 1)).exists()


@dataclass(frozen=True)
class StateOfEveryRound:
    """States of one object each, as torchft's algorithms have them."""

    context: RoundContext

    def rounds(self, last: int) -> range:
        return range(last, 0, -1)

    def is_complete(self, round_: int, *, complete: bool) -> bool:
        return True

    def shards(self, round_: int) -> int:
        return 1

    def folder(self, shard: int) -> str:
        return rendezvous_keys.torchft_states_of(shard)


@pytest.mark.parametrize(
    ("members", "counts"),
    [
        ([[0, 1, 2, 3]] * 6, [355_000_000]),
        # Three members make more shards than four: they are as large as possible, and their number is a multiple.
        ([[0, 1, 2, 3], [0, 1, 2], *[[0, 1, 2, 3]] * 4], [20_000_000]),
        # The sweep that covers the rounds of a large fragment may come with the commit of a small one.
        ([[0, 1, 2, 3]] * 6, [355_000_000, 8_000_000]),
    ],
    ids=["all", "three of four", "fragments"],
)
def test_a_sweep_covers_all_shards_of_a_large_model(
    tmp_path: Path, members: list[list[int]], counts: list[int]
) -> None:
    run = Run(tmp_path, replicas=4)
    context = run.context()
    keepers = [Keeper(StateOfEveryRound(context), rank) for rank in range(4)]
    most = 0
    for round_, ranks in enumerate(members, 1):
        done = commit_of(ranks, round=round_, count=counts[(round_ - 1) % len(counts)])
        shards = shards_for(blocks.Blocks(done.count, context.codec), done.members)
        most = max(most, shards)
        for shard in range(shards):
            run.store.create(rendezvous_keys.reduced(round_, 0, shard), bytes(HEADER_BYTES + 1))
        for rank in ranks:
            keepers[rank].keep(done)
    assert most > 4 * 4
    left = {int(path.name[:8]) for path in (tmp_path / rendezvous_keys.REDUCED).rglob("0*-000")}
    assert left == {len(members)}
