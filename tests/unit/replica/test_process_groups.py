"""Replicas of one, two and four processes in one run: every global state has the bytes of one process's."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from muster.replica.algorithms.algorithm import Algorithm
from tests.support.groups import start_group, states
from tests.support.peers import SHARDED, Run

SIZES = (1, 2, 4)


def results(root: Path, sizes: tuple[int, ...], algorithm: Algorithm, **settings: int) -> set[tuple[bytes, bytes]]:
    run = Run(root, replicas=len(sizes), min_participants=len(sizes), **settings)
    halt = threading.Event()
    groups = [start_group(run, rank, size, algorithm, halt=halt) for rank, size in enumerate(sizes)]
    return states(groups)


@pytest.mark.parametrize(
    "algorithm",
    [
        Algorithm(),
        Algorithm(codec="int8"),
        Algorithm(codec="int4"),
        Algorithm(codec="topk2-64"),
        Algorithm(sync_every=4, fragments=2, delay=1, alpha=0.5, codec="int8"),
        Algorithm(eager=True, codec="bf16"),
    ],
    ids=lambda algorithm: f"{algorithm.codec}-{algorithm.fragments}{'-eager' if algorithm.eager else ''}",
)
def test_the_global_state_has_the_same_bytes_whatever_the_inner_size(tmp_path: Path, algorithm: Algorithm) -> None:
    alone = results(tmp_path / "alone", (1, 1, 1), algorithm, count=SHARDED, snapshot_rounds=2)
    mixed = results(tmp_path / "mixed", SIZES, algorithm, count=SHARDED, snapshot_rounds=2)
    assert len(alone) == 1
    assert mixed == alone
