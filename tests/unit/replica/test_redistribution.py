"""Values between the local shards of a replica's processes and their slices, against the whole tensors."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.replica.codecs import codec_named
from muster.replica.frontends.common_state import load_common
from muster.replica.parts import redistribution
from muster.replica.parts.cut import Cut
from muster.replica.parts.local_shard import LocalShard
from muster.replica.parts.redistribution import Redistribution
from muster.replica.store.checkpoints import Checkpoints
from tests.support.groups import Shared, ThreadLink
from tests.support.peers import run_all


@st.composite
def meshes(draw: st.DrawFn) -> list[list[LocalShard]]:
    """Up to four tensors, each split or copied along two dimensions of a mesh of up to eight processes."""
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    tensors = []
    for shape in draw(st.lists(st.lists(st.integers(1, 6), max_size=3), min_size=1, max_size=4)):
        whole = LocalShard.whole(tuple(shape))
        over_rows = draw(st.integers(-1, len(whole.shape) - 1))
        over_columns = draw(st.integers(-1, len(whole.shape) - 1))
        factor = columns if over_rows == over_columns else 1
        held = []
        for row in range(rows):
            for column in range(columns):
                shard = whole if over_rows < 0 else whole.split(over_rows, rows, row, factor)
                held.append(shard if over_columns < 0 else shard.split(over_columns, columns, column))
        tensors.append(held)
    return tensors


def flattened(shard: LocalShard, whole: np.ndarray) -> np.ndarray:
    indices = [[index for run in runs for index in run] for runs in shard.held]
    return whole.reshape(shard.shape)[np.ix_(*indices)].reshape(-1)


@given(meshes(), st.data())
def test_slices_are_read_from_shards_and_written_to_them(tensors: list[list[LocalShard]], data: st.DataObject) -> None:
    size = len(tensors[0])
    plan = Redistribution(tensors, data.draw(st.integers(0, len(tensors))))
    wholes = [np.random.default_rng(number).random(prod(held[0].shape)) for number, held in enumerate(tensors)]
    flat = np.concatenate(wholes)
    edges = sorted(data.draw(st.lists(st.integers(0, flat.size), min_size=size - 1, max_size=size - 1)))
    spans = [slice(start, stop) for start, stop in zip([0, *edges], [*edges, flat.size], strict=True)]
    written = [[np.full(held[rank].count, np.nan) for held in tensors] for rank in range(size)]
    for holder, span in enumerate(spans):
        values = np.full(span.stop - span.start, np.nan)
        for source in range(size):
            for run in plan.reads(source, holder, span):
                assert np.isnan(values[run.places]).all(), "an element is sent twice"
                values[run.places] = flattened(tensors[run.tensor][source], wholes[run.tensor])[run.local]
        assert values.tobytes() == flat[span].tobytes()
        for target in range(size):
            for run in plan.writes(target, span):
                written[target][run.tensor][run.local] = values[run.places]
    for rank in range(size):
        for held, whole, found in zip(tensors, wholes, written[rank], strict=True):
            assert found.tobytes() == flattened(held[rank], whole).tobytes()


def test_of_copies_a_process_reads_its_own_and_of_statistics_the_first_ones() -> None:
    whole = [[LocalShard.whole((4,))] * 3] * 2
    plan = Redistribution(whole, 1)
    senders = {
        (run.tensor, reader): source
        for reader in range(3)
        for source in range(3)
        for run in plan.reads(source, reader, slice(0, 8))
    }
    assert senders == {(0, 0): 0, (0, 1): 1, (0, 2): 2, (1, 0): 0, (1, 1): 0, (1, 2): 0}


def test_runs_of_scattered_elements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redistribution, "RUN_ELEMENTS", 4)
    columns = [[LocalShard.whole((6, 4)).split(1, 2, rank) for rank in range(2)]]
    runs = list(Redistribution(columns, 1).reads(1, 0, slice(2, 24)))
    assert [run.local for run in runs] == [slice(0, 4), slice(4, 8), slice(8, 12)]


@given(st.integers(1, 400_000), st.integers(1, 3), st.integers(1, 6), st.sampled_from(["fp32", "int4", "topk2-64"]))
def test_the_slices_of_all_processes_are_every_element_once(count: int, fragments: int, size: int, codec: str) -> None:
    cuts = [Cut(count, codec_named(codec), fragments, rank, size) for rank in range(size)]
    assert sum(cut.length for cut in cuts) == count
    held = sorted((span.start, span.stop) for cut in cuts for span, _ in cut.places() if span.start < span.stop)
    assert held[0][0] == 0
    assert held[-1][1] == count
    assert all(one[1] == other[0] for one, other in itertools.pairwise(held))
    for cut in cuts:
        locals_ = [cut.local(part) for part in cut.parts]
        assert [local.stop - local.start for local in locals_] == [span.stop - span.start for span, _ in cut.places()]
        assert cut.local(slice(0, None)) == slice(0, cut.length)
    alone = replace(cuts[0], rank=0, size=1)
    assert alone.runs == [(slice(0, count), slice(0, count))]


def test_a_group_continues_from_the_newest_state_that_all_its_processes_have(tmp_path: Path) -> None:
    saved = [[1, 2, 3], [2, 3, 4], [1, 2]]
    shared = Shared(3)
    found: list[bytes | None] = [None] * 3

    def load(rank: int) -> None:
        checkpoints = Checkpoints(tmp_path, f"trainer-p{rank}of3")
        for round_ in saved[rank]:
            checkpoints.save(round_, b"%d" % round_)
        found[rank] = load_common(ThreadLink(shared, rank), checkpoints, 4)

    run_all([threading.Thread(target=load, args=(rank,), daemon=True) for rank in range(3)])
    assert found == [b"2"] * 3
