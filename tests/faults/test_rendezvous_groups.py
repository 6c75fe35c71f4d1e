"""Replicas of several processes that lose a process or data: a round is whole or not at all, with the same bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import GroupError
from muster.replica.wire.binary_format import Floats
from tests.support.groups import Group, start_group, states
from tests.support.peers import SHARDED, Faults, Killed, Run, gradient_of, kill_at
from tests.support.rendezvous_keys import is_like
from tests.support.waiting import wait_until

Gradient = Callable[[int, int, int], Floats]


def started(
    root: Path,
    sizes: tuple[int, int],
    algorithm: Algorithm,
    *,
    faults: Callable[[int], Faults] = lambda _: Faults(),
    gradient: Gradient = gradient_of,
) -> list[Group]:
    """Two replicas, of which the second one has `faults`. A round needs one of them and waits for both."""
    run = Run(root, replicas=2, min_participants=1, count=SHARDED, snapshot_rounds=2)
    halt = threading.Event()
    return [
        start_group(run, 0, sizes[0], algorithm, halt=halt, gradient=gradient),
        start_group(run, 1, sizes[1], algorithm, halt=halt, gradient=gradient, faults=faults),
    ]


@pytest.mark.parametrize(
    "pattern",
    [
        "contributions/00001/00000002-000001-0002",
        "contributions/00001/00000002-000001",
        "reduced/*/00000002",
        "snapshots/*/00000002-shared",
    ],
    ids=["part", "contribution", "shard", "snapshot"],
)
def test_a_group_that_loses_a_process_is_rerun_with_another_number_of_processes(tmp_path: Path, pattern: str) -> None:
    algorithm = Algorithm()
    expected = states(started(tmp_path / "alone", (1, 1), algorithm))
    run = Run(tmp_path / "run", replicas=2, min_participants=2, count=SHARDED, snapshot_rounds=2)
    victim = start_group(run, 1, 4, algorithm, faults=lambda _: Faults(before_create=kill_at(pattern)))
    died = threading.Event()

    def after_death(key: str) -> None:
        if is_like(key, pattern):
            died.wait()

    other = start_group(run, 0, 2, algorithm, faults=lambda _: Faults(before_create=after_death))
    wait_until("the victim's death", lambda: all(process.error is not None for process in victim.processes))
    died.set()
    errors = [process.error for process in victim.processes]
    assert any(isinstance(error, Killed) for error in errors)
    assert all(isinstance(error, Killed | GroupError) for error in errors)
    again = start_group(run, 1, 2, algorithm, attempt=2)
    assert states([other, again]) == expected


@pytest.mark.parametrize("codec", ["fp32", "int8"])
def test_values_that_cannot_be_averaged_in_one_process_decline_the_whole_contribution(
    tmp_path: Path, codec: str
) -> None:
    def gradient(rank: int, round_: int, count: int) -> Floats:
        values = gradient_of(rank, round_, count)
        if (rank, round_) == (1, 2):
            values[count // 2] = np.nan
        return values

    algorithm = Algorithm(codec=codec)
    expected = states(started(tmp_path / "alone", (1, 1), algorithm, gradient=gradient))
    groups = started(tmp_path / "groups", (2, 4), algorithm, gradient=gradient)
    assert states(groups) == expected
    assert [outcome.participants for outcome in groups[0].processes[1].outcomes] == [(0, 1), (0,), (0, 1), (0, 1)]


@pytest.mark.parametrize(
    ("alone", "in_parts"),
    [("contributions/00001/00000002-", "contributions/00001/00000002-000001-0003"), ("reduced/*/00000002",) * 2],
    ids=["contribution", "shard"],
)
def test_damage_has_the_same_effect_whatever_the_number_of_processes(tmp_path: Path, alone: str, in_parts: str) -> None:
    def damaged(pattern: str) -> Callable[[int], Faults]:
        def rewrite(key: str, body: bytes) -> bytes:
            return body[:-8] + bytes(8) if is_like(key, pattern) and len(body) > 4096 else body

        return lambda _: Faults(rewrite=rewrite)

    expected = states(started(tmp_path / "alone", (1, 1), Algorithm(), faults=damaged(alone)))
    assert states(started(tmp_path / "groups", (2, 4), Algorithm(), faults=damaged(in_parts))) == expected
