"""A run in each codec: the same bits for all members, the same bytes for a shard from any member, and few of them."""

from pathlib import Path

import pytest

from muster.replica.rounds import agreement
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES
from tests.support.peers import (
    SHARDED,
    Faults,
    Killed,
    Run,
    all_ended,
    dead_are_replaced_soon,
    kill_at,
)


@pytest.mark.parametrize("codec", ["bf16", "fp16", "int8", "int4", "topk2-64"])
def test_the_bits_are_the_same_from_any_member_in_a_replay_and_after_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    dead_are_replaced_soon(monkeypatch)
    # As many sparse contributions as would have a mean in shards are too many for this test.
    monkeypatch.setattr(agreement, "gathers", lambda *_: False)
    whole = Run(tmp_path / "whole", count=SHARDED, rounds=2, codec=codec)
    peers = whole.start_all()
    with all_ended(peers):
        finals = {peer.parameters() for peer in peers}
    assert len(finals) == 1
    # In round 2 rank 2 owns the first shard (owners move on by one member each round), and dies before it makes it.
    broken = Run(tmp_path / "broken", count=SHARDED, rounds=2, codec=codec)
    victim = broken.start(2, faults=Faults(before_create=kill_at(rendezvous_keys.reduced(2, 0, 0))))
    others = broken.start_behind(victim, rendezvous_keys.reduced(2, 0, 0), 0, 1)
    with all_ended([victim, *others]):
        assert isinstance(victim.join().error, Killed)
        assert {peer.parameters() for peer in others} == finals
    assert _means(broken, 2) == _means(whole, 2)
    # A joiner computes a damaged shard again, and replays the others.
    shard = whole.root / rendezvous_keys.reduced(1, 0, 0)
    shard.write_bytes((body := shard.read_bytes())[:-9] + bytes([body[-9] ^ 1]) + body[-8:])
    late = whole.start(1, attempt=2)
    with all_ended([late]):
        assert {late.parameters()} == finals


def _means(run: Run, round_: int) -> dict[str, bytes]:
    """The records: the headers name the members with their metrics, of which utilisation differs from run to run."""
    shards = sorted((run.root / rendezvous_keys.REDUCED).glob(f"*/{round_:08d}-*"))
    return {path.parent.name: path.read_bytes()[HEADER_BYTES:] for path in shards}
