"""A run in each codec: the same bits for all members, the same bytes for a shard from any member, and few of them."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.round_context import RoundContext
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import Bytes, Part
from muster.replica.wire import keys
from muster.replica.wire.binary_format import HEADER_BYTES
from tests.support.peers import (
    RUN,
    SHARDED,
    Faults,
    Killed,
    Run,
    all_ended,
    dead_are_replaced_soon,
    kill_at,
    none_is_taken_for_dead,
)

LOSING = ["bf16", "fp16", "int8", "int4", "topk2-64"]


def test_the_bits_are_the_same_from_any_member_in_a_replay_and_after_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_are_replaced_soon(monkeypatch)
    for codec in LOSING:
        whole = Run(tmp_path / codec, count=SHARDED, rounds=2, codec=codec)
        peers = whole.start_all()
        with all_ended(peers):
            finals = {peer.parameters() for peer in peers}
        assert len(finals) == 1, codec
        # In round 2 rank 2 owns the first shard (owners move on by one member each round), and dies before it makes it.
        broken = Run(tmp_path / f"{codec}-broken", count=SHARDED, rounds=2, codec=codec)
        victim = broken.start(2, faults=Faults(before_create=kill_at(keys.reduced(2, 0, 0))))
        others = broken.start_behind(victim, keys.reduced(2, 0, 0), 0, 1)
        with all_ended([victim, *others]):
            assert isinstance(victim.join().error, Killed)
            assert {peer.parameters() for peer in others} == finals, codec
        assert _means(broken, 2) == _means(whole, 2), codec
        # A joiner computes a damaged shard again, and replays the others.
        shard = whole.root / keys.reduced(1, 0, 0)
        shard.write_bytes((body := shard.read_bytes())[:-9] + bytes([body[-9] ^ 1]) + body[-8:])
        late = whole.start(1, attempt=2)
        with all_ended([late]):
            assert {late.parameters()} == finals, codec


class CountingStore(LocalStore):
    """Counts the bytes of values that are uploaded and downloaded."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.moved = 0

    def create(self, key: str, body: Bytes) -> None:
        self._count(key, len(body))
        super().create(key, body)

    def read(self, key: str, start: int = 0, stop: int | None = None) -> Part:
        part = super().read(key, start, stop)
        self._count(key, len(part.body))
        return part

    def _count(self, key: str, size: int) -> None:
        if key.startswith((keys.CONTRIBUTIONS, keys.REDUCED)):
            self.moved += size


def test_int4_moves_at_most_0_14_of_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Contributions and means together, uploads and downloads, headers included."""
    # A member that took over a slow member's shard would transfer more.
    none_is_taken_for_dead(monkeypatch)
    moved = {codec: _moved(tmp_path / codec, codec) for codec in ("fp32", "int4")}
    assert moved["int4"] <= 0.14 * moved["fp32"]


def _moved(root: Path, codec: str) -> int:
    run = Run(root, count=1_000_000, rounds=1, codec=codec)
    stores: list[CountingStore] = []

    class Counted(Run):
        @property
        def store(self) -> LocalStore:
            stores.append(CountingStore(self.root))
            return stores[-1]

    run = Counted(**vars(run))
    peers = run.start_all()
    with all_ended(peers):
        assert len({peer.parameters() for peer in peers}) == 1
    return sum(store.moved for store in stores)


def _train(root: Path, checkpoints: Path, rounds: int, attempt: int = 1) -> bytes:
    context = RoundContext(LocalStore(root), RUN, Quorum(1, 1, 1.0), 20.0, Event())
    parameters = np.zeros(1000, np.float32)
    rendezvous = Rendezvous.open(context, 0, attempt, Metrics())
    outer = DiLoCo(rendezvous, parameters, Algorithm(codec="int4"), checkpoint_dir=checkpoints)
    while outer.round < rounds:
        parameters -= np.random.default_rng(outer.round).standard_normal(1000).astype(np.float32)
        outer.step()
    return parameters.tobytes()


def test_the_residual_of_error_feedback_is_restored_with_the_replica(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    unbroken = _train(tmp_path / "a", tmp_path / "b", rounds=5)
    _train(tmp_path / "run", checkpoints, rounds=2)
    assert _train(tmp_path / "run", checkpoints, rounds=5, attempt=2) == unbroken


def _means(run: Run, round_: int) -> dict[str, bytes]:
    """The records: the headers name the members with their metrics, of which utilisation differs from run to run."""
    shards = sorted((run.root / keys.REDUCED).glob(f"*/{round_:08d}-*"))
    return {path.parent.name: path.read_bytes()[HEADER_BYTES:] for path in shards}
