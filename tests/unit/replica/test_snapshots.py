"""Snapshots: cut into shards, complete only with their manifest, checked when they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.errors import RendezvousError
from muster.replica.parts.cut import Cut
from muster.replica.rounds import snapshots
from muster.replica.rounds.round_history import latest_state
from muster.replica.rounds.snapshots import Snapshots
from muster.replica.store.transport import ObjectMissingError
from muster.replica.wire import keys
from tests.support.peers import Run

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


def store(kept: Snapshots, round_: int) -> None:
    kept.put(state(round_), range(kept.shards(round_)))
    kept.seal(round_)


@pytest.mark.parametrize("round_", [0, 2])
def test_what_is_stored_in_shards_is_loaded_bit_for_bit(kept: Snapshots, round_: int) -> None:
    kept.put(state(round_), range(kept.shards(round_)))
    assert kept.load(round_) is None, "a snapshot without its manifest is none"
    kept.seal(round_)
    loaded = kept.load(round_)
    assert loaded is not None
    assert loaded.round == round_
    assert loaded.parameters.tobytes() == state(round_).parameters.tobytes()
    assert loaded.momentum.tobytes() == state(round_).momentum.tobytes()


def test_shards_are_bounded_however_large_the_model_is() -> None:
    context = Run(Path("nowhere"), replicas=4).context()
    huge = Snapshots(context, Cut(10_000_000_000), "layout")  # 80 GB with its momentum, sixteen times a single PUT
    assert 2 * huge.count * 4 / huge.shards(2) <= snapshots.SHARD_BYTES_MAX
    assert Snapshots(context, Cut(1_000), "layout").shards(2) == 1


def test_the_missing_shards_are_those_not_written(kept: Snapshots) -> None:
    assert kept.shards(2) == 7
    kept.put(state(2), [0, 3])
    assert kept.missing(2) == [1, 2, 4, 5, 6]


def damage(root: Path, round_: int) -> None:
    path = root / keys.snapshot(round_, "shared", 1)
    body = bytearray(path.read_bytes())
    body[-2] ^= 1
    path.write_bytes(body)


def test_a_damaged_snapshot_is_passed_over_for_the_one_before(kept: Snapshots, tmp_path: Path) -> None:
    for round_ in range(1, 5):
        kept.context.store.create(keys.commit(round_), b"{}")
    store(kept, 2)
    store(kept, 4)
    damage(tmp_path, 4)
    found = latest_state(kept)
    assert found is not None
    assert found.round == 2
    damage(tmp_path, 2)
    with pytest.raises(RendezvousError, match="is damaged: the checksum of block"):
        latest_state(kept)


def test_a_snapshot_that_is_deleted_is_distinguished_from_one_that_never_was(kept: Snapshots) -> None:
    store(kept, 2)
    kept.context.store.delete([keys.snapshot(2, "shared", 3)])
    with pytest.raises(ObjectMissingError):
        kept.load(2)
    assert kept.load(4) is None


def test_a_shard_in_the_place_of_another_is_noticed(kept: Snapshots, tmp_path: Path) -> None:
    store(kept, 2)
    first, second = (tmp_path / keys.snapshot(2, "shared", shard) for shard in (1, 2))
    first.unlink()
    first.write_bytes(second.read_bytes())
    with pytest.raises(RendezvousError, match="is damaged"):
        kept.load(2)
