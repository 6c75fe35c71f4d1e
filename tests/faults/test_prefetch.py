"""A recovery that is read ahead: what it takes, what it leaves, and what may go wrong meanwhile."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from muster.replica.codecs import FP32
from muster.replica.group.board import InnerGroup
from muster.replica.parts.cut import Cut
from muster.replica.rounds import agreement, prefetch, snapshots
from muster.replica.rounds.commit_store import read_commit
from muster.replica.rounds.reduced_shards import shards_of
from muster.replica.rounds.round_mean import ranges_read
from muster.replica.rounds.snapshots import Snapshots, read_manifest
from muster.replica.store.transport import StoreDeniedError, StoreUnavailableError
from muster.replica.wire import blocks, rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES
from tests.support.peers import SHARDED, Faults, Run, all_ended, kill_at, missing_only_in, returns_before
from tests.support.prefetching import DATA, Joined, Recovering
from tests.support.rendezvous_keys import is_like, of_round
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _many_requests(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(snapshots, "READ_BYTES_MIN", 2**18)
    monkeypatch.setattr(blocks, "FILLED_SHARD_BYTES_MIN", 2**18)
    caplog.set_level(logging.INFO)


def trained(root: Path, rounds: int) -> Run:
    """A run of two replicas that was given up: a snapshot after round 2, and later rounds."""
    run = Run(root, replicas=2, min_participants=1, rounds=rounds, count=SHARDED, snapshot_rounds=2)
    peers = run.start_all()
    with all_ended(peers):
        assert len({peer.parameters() for peer in peers}) == 1
    return run


def read_ahead(process: Recovering, caplog: pytest.LogCaptureFixture) -> None:
    process.prefetch.start()
    wait_until("the end of the prefetch", lambda: "event=prefetched" in caplog.text)


def parameters_of(joined: Joined) -> bytes:
    training = joined.rendezvous.departure.training
    return training.state.parameters.tobytes() if training else b""


def rounds_read(process: Recovering, round_: int) -> set[str]:
    return {key for key in process.store.read_keys if is_like(key, of_round(rendezvous_keys.REDUCED, round_))}


def test_a_rejoining_replica_is_back_in_the_round_after_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # A wait in any other round would last as long as the test may.
    missing_only_in(monkeypatch, 3)
    run = Run(tmp_path, min_participants=2, rounds=7, count=SHARDED, snapshot_rounds=2)
    process, joined, read_again = Recovering(run, 1), list[Joined](), list[str]()

    def hold(round_: int) -> None:
        if round_ == 5:
            # The current round: the trainer of the lost replica is being imported.
            read_ahead(process, caplog)
        if round_ == 6:
            # Round 5 was committed meanwhile, and was read ahead as well, after the snapshot that it completes.
            wait_until("the newer snapshot", lambda: "event=prefetched from=4" in caplog.text)
            wait_until("the means of round 5", lambda: len(rounds_read(process, 5)) == shards_of(run.commit(5), FP32))
            process.ahead.settle()
            before = len(process.store.read_keys)
            joined.append(process.join())
            read_again.extend(process.store.read_keys[before:])

    lost = run.start(1, faults=Faults(before_create=kill_at(f"{rendezvous_keys.contributions_of(1)}00000003")))
    others = [run.start(0, before_step=hold), run.start(2)]
    with all_ended([lost, *others]):
        wait_until("the rerun", lambda: joined or others[0].error)
        assert others[0].error is None, others[0].error
        assert joined[0].outer.round == 5
        assert read_again == []
        joined[0].train(run.rounds)
        finals = {peer.parameters() for peer in others} | {joined[0].parameters.tobytes()}
    assert len(finals) == 1
    members = {round_: [member.rank for member in run.commit(round_).members] for round_ in range(3, 8)}
    assert members == {3: [0, 2], 4: [0, 2], 5: [0, 2], 6: [0, 1, 2], 7: [0, 1, 2]}


def test_a_snapshot_that_is_deleted_while_it_is_read_ahead_is_left_for_the_newer_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    missing_only_in(monkeypatch, 4)
    run = Run(tmp_path, replicas=2, min_participants=1, rounds=7, count=SHARDED, snapshot_rounds=2)
    loading, first = threading.Event(), of_round(rendezvous_keys.SNAPSHOTS, 2)

    def delete_first(key: str) -> None:
        if is_like(key, first):
            loading.set()
            wait_until("the deletion", lambda: not (tmp_path / key).exists())

    def hold(round_: int) -> None:
        if round_ == 4:
            assert loading.wait(60)

    process = Recovering(run, 1, faults=Faults(before_read=delete_first))
    others = [run.start(0, before_step=hold)]
    others.append(run.start(1, before_step=returns_before(4)))
    with all_ended(others):
        wait_until("the snapshot", (tmp_path / rendezvous_keys.manifest(2)).exists)
        process.prefetch.start()
        last = others[0].parameters()
        # The newer one is found in the middle of it, and read ahead instead.
        wait_until("the end of the prefetch", lambda: "event=prefetched from=6" in caplog.text)
        before = len(process.store.read_keys)
        assert parameters_of(process.join()) == last
    assert process.store.read_keys[before:] == []
    assert any(is_like(key, first) for key in process.store.read_keys)


def test_what_was_read_ahead_is_checked_and_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trained(tmp_path / "run", rounds=3)
    other = trained(tmp_path / "other", rounds=3)
    spoils: dict[str, Callable[[str, bytes], bytes]] = {
        # The same key of another run, whose values have checksums that match.
        "foreign": lambda key, _: (other.root / key).read_bytes().replace(b'"run":"test"', b'"run":"tost"'),
        "damaged": lambda _, body: body[:-2] + bytes([body[-2] ^ 1]) + body[-1:],
        "truncated": lambda _, body: body[: len(body) // 2],
        "empty": lambda *_: b"",
    }
    for attempt, (kind, spoil) in enumerate(spoils.items(), start=2):
        caplog.clear()
        process, spoilt = Recovering(run, 1, attempt), set[tuple[str, int]]()

        def spoil_once(
            key: str, body: bytes, spoil: Callable[[str, bytes], bytes] = spoil, spoilt: set[tuple[str, int]] = spoilt
        ) -> bytes:
            if not key.startswith(DATA) or (key, len(body)) in spoilt:
                return body
            spoilt.add((key, len(body)))
            return spoil(key, body)

        process.store.rewrite = spoil_once
        read_ahead(process, caplog)
        assert spoilt, kind
        joined = process.join()
        assert (joined.outer.round, parameters_of(joined)) == (3, run.replayed_by_hand()), kind


def test_a_snapshot_that_is_superseded_after_it_was_read_ahead_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = trained(tmp_path, rounds=3)
    process = Recovering(run, 1)
    read_ahead(process, caplog)
    process.prefetch._over.set()  # it does not see what follows
    longer = replace(run, rounds=6)
    again = [longer.start(0, attempt=2), longer.start(1, attempt=2)]
    with all_ended(again):
        last = {peer.parameters() for peer in again}
    later = Recovering(longer, 1, attempt=3)
    before = len(process.store.read_keys)
    later.context = replace(longer.context(process.store), ahead=process.ahead)
    later.prefetch = process.prefetch
    assert {parameters_of(later.join())} == last
    read = process.store.read_keys[before:]
    assert any(is_like(key, of_round(rendezvous_keys.SNAPSHOTS, 4)) for key in read)
    assert not any(is_like(key, of_round(rendezvous_keys.SNAPSHOTS, 2)) for key in read)


def test_a_prefetch_that_fails_fails_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = trained(tmp_path, rounds=3)
    errors = (
        StoreUnavailableError("s3://bucket/key", 8, "503"),
        StoreDeniedError("s3://bucket/key", "403"),
        ValueError("a defect"),
    )
    places = (
        rendezvous_keys.OPTIONS,
        rendezvous_keys.COMMITS,
        "manifests/",
        rendezvous_keys.SNAPSHOTS,
        rendezvous_keys.REDUCED,
    )
    for attempt, (where, error) in enumerate(product(places, errors), start=2):
        caplog.clear()
        joining = threading.Event()

        def fail(key: str, where: str = where, error: Exception = error, joining: threading.Event = joining) -> None:
            if key.startswith(where) and not joining.is_set():
                raise error

        process = Recovering(run, 1, attempt, faults=Faults(before_read=fail))
        process.prefetch.start()
        wait_until("the end of the prefetch", lambda: "event=prefetch" in caplog.text)
        process.ahead.settle()
        joining.set()
        assert parameters_of(process.join()) == run.replayed_by_hand(), (where, error)


def test_the_processes_of_a_replica_read_what_each_will_hold(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run, size, held = trained(tmp_path, rounds=3), 2, list[bytes]()
    for rank in range(size):
        caplog.clear()
        process = Recovering(run, 1, group=InnerGroup(rank, size, rank))
        read_ahead(process, caplog)
        before = len(process.store.read_keys)
        manifest, commit = read_manifest(process.context, 2), read_commit(process.context, 3)
        assert manifest is not None
        assert commit is not None
        cut = Cut(run.count, FP32, 1, rank, size)
        held.append(Snapshots(process.context, cut, manifest.layout).load(manifest).parameters.tobytes())
        wanted = list(ranges_read(process.context, commit, rank, size))
        assert all(any(process.ahead.stream(one.key, one.start, one.stop)) for one in wanted)
        assert process.store.read_keys[before:] == []
        process.prefetch.close()
    assert b"".join(held) == replace(run, rounds=2).replayed_by_hand()


def test_a_round_without_shards_is_replayed_from_contributions_that_were_read_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agreement, "gathers", lambda *_: True)
    run = trained(tmp_path, rounds=3)
    process = Recovering(run, 1)
    read_ahead(process, caplog)
    before = len(process.store.read_keys)
    assert parameters_of(process.join()) == run.replayed_by_hand()
    assert process.store.read_keys[before:] == []


def test_a_model_that_does_not_fit_beside_itself_is_read_as_without_a_prefetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "room", lambda *_: 100_000)
    run = trained(tmp_path, rounds=3)
    process = Recovering(run, 1)
    process.prefetch.start()
    wait_until("the end of the prefetch", lambda: not process.prefetch._thread.is_alive())
    assert process.store.read_keys == []
    assert parameters_of(process.join()) == run.replayed_by_hand()


def test_rounds_whose_shards_were_refused_are_replayed_from_what_was_read_ahead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of each such round a shard was read ahead that says so and has no values."""
    rounds = 3
    damaged = {rendezvous_keys.contribution(round_, 1, 1) for round_ in range(1, rounds)}

    def damage(key: str, body: bytes) -> bytes:
        changed = bytearray(body)
        if key in damaged:
            changed[HEADER_BYTES + 8] ^= 1
        return bytes(changed)

    run = Run(tmp_path, replicas=3, min_participants=2, rounds=rounds, count=SHARDED)
    peers = [run.start(rank, faults=Faults(rewrite=damage) if rank == 1 else None) for rank in range(3)]
    with all_ended(peers):
        expected = {peer.parameters() for peer in peers}
    assert len(run.commit(2, 1).members) == 2
    process = Recovering(run, 0)
    read_ahead(process, caplog)
    assert {parameters_of(process.join())} == expected
