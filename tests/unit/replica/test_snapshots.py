"""Snapshots: cut into shards, complete only with their manifest, checked when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.errors import RendezvousError
from muster.replica.parts.cut import Cut
from muster.replica.rounds import snapshots
from muster.replica.rounds.round_history import latest_state
from muster.replica.rounds.snapshots import Snapshots, read_manifest
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import ObjectMissingError
from muster.replica.wire import keys
from muster.replica.wire.binary_format import object_bytes
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


def load(kept: Snapshots, round_: int) -> GlobalState | None:
    manifest = read_manifest(kept.context, round_)
    return None if manifest is None else kept.load(manifest)


@pytest.mark.parametrize("round_", [0, 2])
def test_what_is_stored_in_shards_is_loaded_bit_for_bit(kept: Snapshots, round_: int) -> None:
    kept.put(state(round_), range(kept.shards(round_)))
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
        load(kept, 2)
    assert load(kept, 4) is None


def test_a_shard_in_the_place_of_another_is_noticed(kept: Snapshots, tmp_path: Path) -> None:
    store(kept, 2)
    first, second = (tmp_path / keys.snapshot(2, "shared", shard) for shard in (1, 2))
    first.unlink()
    first.write_bytes(second.read_bytes())
    with pytest.raises(RendezvousError, match="is damaged"):
        load(kept, 2)


LARGE = 200_000  # 13 blocks of the parameters and 12 of the momentum, in one shard


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Snapshots, GlobalState]:
    """A stored snapshot whose shard is read in several ranges."""
    monkeypatch.setattr(snapshots, "READ_BYTES_MIN", 2**18)
    kept = Snapshots(Run(tmp_path, replicas=1, snapshot_rounds=2).context(), Cut(LARGE), "layout")
    rng = np.random.default_rng(0)
    stored = GlobalState(2, *(rng.standard_normal(LARGE).astype(np.float32) for _ in range(2)))
    kept.put(stored, range(kept.shards(2)))
    kept.seal(2)
    assert kept.shards(2) == 1
    return kept, stored


def test_a_large_shard_is_read_over_several_connections(
    large: tuple[Snapshots, GlobalState], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, stored = large
    asked: list[tuple[int, int]] = []
    stream = LocalStore.stream

    def counted(self: LocalStore, key: str, start: int, stop: int, **_: tuple[int, int]) -> Iterator[memoryview]:
        asked.append((start, stop))
        return stream(self, key, start, stop)

    monkeypatch.setattr(LocalStore, "stream", counted)
    loaded = load(kept, 2)
    assert loaded is not None
    assert loaded.parameters.tobytes() == stored.parameters.tobytes()
    assert loaded.momentum.tobytes() == stored.momentum.tobytes()
    # Every byte is asked for once, and one more than there are.
    size = object_bytes(2 * LARGE)
    edges = sorted(asked)
    assert len(edges) > 2
    assert [start for start, _ in edges] == [0, *(stop for _, stop in edges[:-1])]
    assert edges[-1][1] == size + 1


@pytest.mark.parametrize("place", ["header", "middle", "end", "beyond"])
def test_damage_in_any_of_its_ranges_is_noticed(
    large: tuple[Snapshots, GlobalState], tmp_path: Path, place: str
) -> None:
    kept, _ = large
    path = tmp_path / keys.snapshot(2, "shared", 0)
    body = bytearray(path.read_bytes())
    if place == "beyond":
        body.append(0)
    else:
        body[{"header": 20, "middle": len(body) // 2, "end": len(body) - 1}[place]] ^= 1
    path.unlink()
    path.write_bytes(body)
    with pytest.raises(RendezvousError, match="is damaged"):
        load(kept, 2)
