"""A round whose amendments leave fewer members than `min_participants` changes nothing, and the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.replica.wire import keys
from muster.replica.wire.binary_format import HEADER_BYTES
from tests.support.peers import Faults, Peer, Run, all_ended, none_is_taken_for_dead
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _all_live(monkeypatch: pytest.MonkeyPatch) -> None:
    none_is_taken_for_dead(monkeypatch)


def damaging(*ranks: int) -> Faults:
    damaged = [keys.contribution(2, rank, 1) for rank in ranks]

    def rewrite(key: str, body: bytes) -> bytes:
        at = HEADER_BYTES + 9
        return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :] if key in damaged else body

    return Faults(rewrite=rewrite)


def after_each_round(run: Run, faults: Faults) -> tuple[list[Peer], dict[tuple[int, int], bytes]]:
    """The parameters of each replica before each of its rounds."""
    seen: dict[tuple[int, int], bytes] = {}
    peers: list[Peer] = []

    def start(rank: int) -> Peer:
        def before_step(round_: int) -> None:
            wait_until("the list of peers", lambda: len(peers) == run.replicas)
            rendezvous = peers[rank].rendezvous
            assert rendezvous is not None
            assert rendezvous.training is not None
            seen[rank, round_] = rendezvous.training.state.parameters.tobytes()

        return run.start(rank, faults=faults, before_step=before_step)

    for rank in range(run.replicas):
        peers.append(start(rank))
    return peers, seen


@pytest.mark.parametrize(("replicas", "damaged"), [(2, (1,)), (3, (1, 2))], ids=["one of two", "two of three"])
def test_a_quorum_that_damage_has_lost_makes_the_round_void(
    tmp_path: Path, replicas: int, damaged: tuple[int, ...]
) -> None:
    run = Run(tmp_path, replicas=replicas, min_participants=2, snapshot_rounds=2)
    peers, seen = after_each_round(run, damaging(*damaged))
    with all_ended(peers):
        finals = {peer.parameters() for peer in peers}
    assert len(finals) == 1
    # One amendment for each: the first maker of the shard is one of the two.
    amendment = run.commit(2, len(damaged))
    assert amendment.void
    assert [item.rank for item in amendment.excluded] == list(damaged)
    for rank in range(replicas):
        # Neither the parameters nor the momentum moved, and all took part in the next round.
        assert seen[rank, 3] == seen[rank, 2] != seen[rank, 1]
        assert [outcome.took_part for outcome in peers[rank].outcomes] == [True, False, True, True]
        assert peers[rank].outcomes[1].participants == ()
    # Also for a joiner, which replays the round.
    assert {run.start(0, attempt=2).parameters()} == finals


def test_a_quorum_that_is_left_is_no_void_round(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=3, min_participants=2)
    peers, _ = after_each_round(run, damaging(1))
    with all_ended(peers):
        assert len({peer.parameters() for peer in peers}) == 1
    assert not run.commit(2, 1).void
    assert [member.rank for member in run.commit(2, 1).members] == [0, 2]
