"""A replica whose parameters have other bits than its peers' is found before anything of it is averaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import OtherStateError, RendezvousError
from muster.replica.metrics import Metrics
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.wire import keys
from tests.support.groups import start_group, states
from tests.support.peers import Peer, Run, all_ended, gradient_of, missing_only_in
from tests.support.waiting import wait_until

FLIPPED = 3


def flipping(peers: list[Peer], rank: int) -> Callable[[int], None]:
    """Changes one bit of the global parameters of `rank` before round 3."""

    def before_step(round_: int) -> None:
        if round_ == FLIPPED:
            wait_until("the list of peers", lambda: len(peers) > rank)
            rendezvous = peers[rank].rendezvous
            assert rendezvous is not None
            assert rendezvous.training is not None
            rendezvous.training.state.parameters.view("u4")[7] ^= 1

    return before_step


def started(run: Run) -> list[Peer]:
    peers: list[Peer] = []
    for rank in range(run.replicas):
        peers.append(run.start(rank, before_step=flipping(peers, rank) if rank == 1 else lambda _: None))
    return peers


def test_a_replica_with_other_bits_is_excluded_from_that_very_round_and_its_rerun_has_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, FLIPPED + 1)
    run = Run(tmp_path, min_participants=2, rounds=5)
    peers = started(run)
    with all_ended(peers):
        error = peers[1].join().error
        finals = {peers[rank].parameters() for rank in (0, 2)}
    assert isinstance(error, OtherStateError)
    assert "The parameters of this replica before round 3 have the digest" in str(error)
    commit = run.commit(FLIPPED)
    assert [member.rank for member in commit.members] == [0, 2]
    [excluded] = commit.excluded
    assert excluded.rank == 1
    assert "its parameters before the round have the digest" in excluded.reason
    assert {run.start(1, attempt=2).parameters()} == finals == {
        run.replayed_by_hand(lambda round_: [0, 1, 2] if round_ < FLIPPED else [0, 2])
    }  # fmt: skip


def test_a_tie_between_bits_ends_all_and_their_reruns_load_the_runs(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=1)
    peers = started(run)
    with all_ended(peers):
        errors = [peer.join().error for peer in peers]
    for error in errors:
        assert isinstance(error, RendezvousError)
        assert "Round 3 can no longer reach 1 participants (rank 0: its parameters before the round" in str(error)

    def after_both_claims(_: int) -> None:
        # Of a former process the contribution stays, until a new one claims the rank.
        wait_until("the claims", lambda: all((run.root / keys.claim(rank, 2)).exists() for rank in range(2)))

    again = [run.start(rank, attempt=2, before_step=after_both_claims) for rank in range(2)]
    with all_ended(again):
        assert {peer.parameters() for peer in again} == {run.replayed_by_hand()}


def test_a_replica_that_comes_when_the_round_is_committed_finds_its_other_bits(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2, rounds=1)
    peers = run.start_all()
    with all_ended(peers):
        assert len({peer.parameters() for peer in peers}) == 1
    rendezvous = Rendezvous.open(run.context(), 0, 2, Metrics())
    with pytest.raises(OtherStateError):
        rendezvous.exchange(1, LocalUpdate(gradient_of(0, 1, run.count), 1.0, state="00000000"))


@pytest.mark.parametrize("algorithm", [Algorithm(), Algorithm(sync_every=4, fragments=2)], ids=["whole", "fragments"])
def test_replicas_of_several_processes_have_the_digest_of_one(tmp_path: Path, algorithm: Algorithm) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2, count=100_000, rounds=3)
    assert len(states([start_group(run, rank, size, algorithm) for rank, size in enumerate((1, 3))])) == 1
    assert all(run.commit(round_).state for round_ in (1, 2, 3))
    assert run.commit(1).state != run.commit(3).state
