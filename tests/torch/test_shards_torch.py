"""Shards of PyTorch's data sets: what workers have read ahead counts when the trainer gets it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Shards
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.replica_errors import StoppedError
from tests.support.contexts import context_of
from tests.support.peers import Run
from tests.support.shard_training import Training


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 103

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_read_ahead_over_the_ends_of_rounds_and_over_a_rerun(tmp_path: Path, workers: int) -> None:
    run = Run.alone(tmp_path / "run")
    training = Training(run, 10, Algorithm(sync_every=5), epochs=2)
    context = context_of(run)

    def read(shards: Shards) -> Iterator[Any]:
        return shards.loader(Numbers(), batch_size=4, num_workers=workers)

    def step(outer: DiLoCo, _: Any) -> float:
        if (outer.round, outer.steps) == (2, 2):
            context.rendezvous.context.stops.terminate()
        return 1.0

    with pytest.raises(StoppedError):
        training.train(context, read, step)
    training.train(context_of(run, attempt=2), read)
    assert training.counted() == dict.fromkeys(range(103), 2)


def test_batches_on_their_way_are_dropped_where_a_round_did_not_count(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=1)
    training = Training(run, 10, Algorithm(sync_every=5))
    spoilt: list[int] = []

    def read(shards: Shards) -> Iterator[Any]:
        return shards.loader(Numbers(), batch_size=4, num_workers=1)

    def step(outer: DiLoCo, batch: Any) -> float:
        if (outer._rendezvous.rank, outer.round, outer.steps) == (1, 1, 2):
            spoilt.extend(map(int, batch))
            return float("nan")
        return 1.0

    assert training.all_train([context_of(run, rank) for rank in range(2)], read, step) == []
    assert run.commit(2).excluded
    assert training.counted() == Counter(range(103))


def test_a_stream_is_collated(tmp_path: Path) -> None:
    run = Run.alone(tmp_path / "run")
    training = Training(run, 4)
    training.train(
        context_of(run),
        lambda shards: shards.stream(lambda shard: iter(range(10 * shard, 10 * shard + 10)), batch_size=4),
    )
    assert training.counted() == Counter(range(40))
