"""What a process holds of a sharded tensor, against NumPy's own indexing."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from muster.replica.parts.local_shard import LocalShard


@st.composite
def shards(draw: st.DrawFn) -> LocalShard:
    """A tensor of up to three dimensions, split up to three times."""
    shape = tuple(draw(st.lists(st.integers(1, 7), max_size=3)))
    shard = LocalShard.whole(shape)
    for _ in range(draw(st.integers(0, 3))):
        ways = draw(st.integers(1, 4))
        dimension = draw(st.integers(0, len(shard.shape) - 1))
        shard = shard.split(dimension, ways, draw(st.integers(0, ways - 1)), draw(st.integers(1, 3)))
    return shard


def held_places(shard: LocalShard) -> list[int]:
    indices = [[index for run in runs for index in run] for runs in shard.held]
    return np.arange(prod(shard.shape)).reshape(shard.shape)[np.ix_(*indices)].reshape(-1).tolist() if indices else [0]


@given(shards(), st.data())
def test_a_flattened_shard_is_an_ascending_part_of_the_flattened_tensor(shard: LocalShard, data: st.DataObject) -> None:
    places = held_places(shard)
    assert places == sorted(places)
    assert shard.count == len(places)
    for element in range(prod(shard.shape) + 2):
        assert shard.before(element) == sum(place < element for place in places)
    if places:
        start = data.draw(st.integers(0, len(places) - 1))
        stop = data.draw(st.integers(start + 1, len(places)))
        assert np.arange(prod(shard.shape))[shard.places(start, stop)].tolist() == places[start:stop]


@given(st.lists(st.integers(1, 7), max_size=3), st.integers(1, 5), st.integers(1, 3), st.data())
def test_the_parts_of_a_split_hold_every_element_once(
    shape: list[int], ways: int, factor: int, data: st.DataObject
) -> None:
    whole = LocalShard.whole(tuple(shape))
    dimension = data.draw(st.integers(0, len(whole.shape) - 1))
    parts = [whole.split(dimension, ways, index, factor) for index in range(ways)]
    assert sorted(place for part in parts for place in held_places(part)) == list(range(prod(whole.shape)))


def test_neighbours_are_a_slice_and_columns_are_places() -> None:
    whole = LocalShard.whole((4, 6))
    assert whole.split(0, 2, 1).places(0, 12) == slice(12, 24)
    columns = whole.split(1, 3, 1)
    assert columns.places(0, 2) == slice(2, 4)
    assert np.asarray(columns.places(0, 4)).tolist() == [2, 3, 8, 9]
    assert columns.before(9) == 3
