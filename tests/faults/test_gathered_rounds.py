"""Rounds without shards: every replica averages the contributions itself, and all apply the same revision."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from muster.replica.replica_errors import RendezvousError
from muster.replica.rounds import agreement
from muster.replica.store.transport import ObjectRange
from muster.replica.wire import blocks, rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES
from tests.support.peers import (
    SHARDED,
    Faults,
    FaultyStore,
    Killed,
    Peer,
    Run,
    all_ended,
    dead_are_replaced_soon,
    kill_at,
    none_is_taken_for_dead,
)
from tests.support.waiting import wait_until

# Of round 2 the next member, rank 0, states whether the contribution of rank 2 can be used, and rank 2 the others'.
OTHERS, ONE = (rendezvous_keys.verdict(2, 0, part) for part in (0, 1))
GIVEN = [rendezvous_keys.contribution(2, rank, 1) for rank in range(3)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Of a codec that loses nothing: the mean is known to the bit. It is averaged in several pieces."""
    monkeypatch.setattr(agreement, "gathers", lambda *_: True)
    monkeypatch.setattr(blocks, "SHARD_BYTES_AIM", 1)
    return Run(tmp_path, count=SHARDED * 3, min_participants=2, rounds=3)


def damaged(body: bytes) -> bytes:
    at = HEADER_BYTES + 9
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def damaging(key: str) -> Callable[[str, bytes], bytes]:
    return lambda found, body: damaged(body) if found == key else body


def members(run: Run, round_: int) -> list[int]:
    revisions = len(list((run.root / "amendments").glob(f"{round_:08d}-*")))
    return [member.rank for member in run.commit(round_, revisions).members]


def finals(peers: Sequence[Peer]) -> set[bytes]:
    with all_ended(peers):
        return {peer.parameters() for peer in peers}


def test_the_mean_is_that_of_the_members_in_their_order_and_a_joiner_gets_it(run: Run) -> None:
    assert finals(run.start_all()) == {run.replayed_by_hand()}
    assert finals([run.start(1, attempt=2)]) == {run.replayed_by_hand()}
    assert not (run.root / rendezvous_keys.REDUCED).exists()


def test_replicas_with_a_sparse_codec_gather_while_they_are_few(tmp_path: Path) -> None:
    few, many = (Run(tmp_path / codec, count=SHARDED, rounds=2, codec=codec) for codec in ("topk2-64", "int4"))
    assert [len(finals(run.start_all())) for run in (few, many)] == [1, 1]
    assert [run.commit(2).gathers for run in (few, many)] == [True, False]
    assert len(finals([few.start(1, attempt=2), few.start(0, attempt=2)])) == 1


@pytest.mark.parametrize("rank", [1, 2])
def test_a_damaged_contribution_is_left_out_by_its_sender_too(
    run: Run, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The sender has sound values in its memory.
    none_is_taken_for_dead(monkeypatch)
    sender = run.start(rank, faults=Faults(rewrite=damaging(GIVEN[rank])))
    left = [other for other in range(3) if other != rank]
    found = finals([sender, *(run.start(other) for other in left)])
    assert found == {run.replayed_by_hand(lambda round_: members(run, round_))}
    assert [members(run, round_) for round_ in (1, 2, 3)] == [[0, 1, 2], left, [0, 1, 2]]


@pytest.mark.parametrize(("rank", "verdict"), [(2, OTHERS), (0, ONE)])
def test_a_verdict_of_a_dead_member_is_stated_by_another_one(
    run: Run, rank: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_are_replaced_soon(monkeypatch)
    next_ = (rank + 1) % 3
    spoiled = Faults(rewrite=damaging(GIVEN[next_])) if verdict is OTHERS else Faults()

    def hold(key: str) -> None:
        # The one that states it has given damaged data itself, and learns it only now.
        if key == OTHERS == verdict:
            wait_until("the verdict", (run.root / key).exists)

    victim = run.start(rank, faults=Faults(before_create=kill_at(verdict)))
    others = [run.start(next_, faults=spoiled), run.start((rank + 2) % 3, faults=Faults(before_create=hold))]
    assert isinstance(victim.join().error, Killed)
    wait_until("the verdict", (run.root / verdict).exists)
    found = finals([*others, run.start(rank, attempt=2)])
    assert found == {run.replayed_by_hand(lambda round_: members(run, round_))}
    assert (next_ in members(run, 2)) == (verdict is ONE)


def test_a_joiner_states_what_members_have_not_that_all_died(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    dead_are_replaced_soon(monkeypatch)
    dead = [run.start(rank, faults=Faults(before_create=kill_at("verdicts/*/00000002"))) for rank in range(3)]
    assert all(isinstance(peer.join().error, Killed) for peer in dead)
    # Round 3 may be made without one that still loads.
    found = finals([run.start(rank, attempt=2) for rank in range(3)])
    assert found == {run.replayed_by_hand(lambda round_: members(run, round_))}
    assert members(run, 2) == [0, 1, 2]


class Garbling(FaultyStore):
    """Damages every read of one object's values."""

    def read(self, key: str, start: int = 0, stop: int | None = None) -> ObjectRange:
        part = super().read(key, start, stop)
        if key != GIVEN[1] or stop is None or stop <= HEADER_BYTES:
            return part
        return ObjectRange(memoryview(bytes(np.frombuffer(part.body, np.uint8) ^ 1)), part.size, part.created_at)

    def stream(self, key: str, start: int, stop: int, *, sizes: tuple[int, int] = (0, 0)) -> Iterator[memoryview]:
        del sizes
        yield self.read(key, start, stop).body


def test_a_replica_that_alone_cannot_read_a_contribution_ends_and_applies_no_other_mean(run: Run) -> None:
    assert finals(run.start_all()) == {run.replayed_by_hand()}
    rendezvous = run.open(0, attempt=2, store=Garbling(run.store, Faults()))
    with pytest.raises(RendezvousError, match=r"What others have read below .* is damaged \(rank 1: the checksum"):
        rendezvous.rounds.committed(2)
    assert not (run.root / rendezvous_keys.commit(2, 1)).exists()
