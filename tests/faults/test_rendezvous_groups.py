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


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[bytes, bytes]]:
    """What replicas of one process come to, to which nothing happens."""
    return states(started(tmp_path_factory.mktemp("alone"), (1, 1), Algorithm()))


def test_a_group_that_loses_a_process_is_rerun_with_another_number_of_processes(
    tmp_path: Path, undisturbed: set[tuple[bytes, bytes]]
) -> None:
    patterns = {
        "part": "contributions/00001/00000002-000001-0002",
        "contribution": "contributions/00001/00000002-000001",
        "shard": "reduced/*/00000002",
        "snapshot": "snapshots/*/00000002-shared",
    }
    for name, pattern in patterns.items():
        run = Run(tmp_path / name, replicas=2, min_participants=2, count=SHARDED, snapshot_rounds=2)
        dies = Faults(before_create=kill_at(pattern))
        victim = start_group(run, 1, 4, faults=lambda _, dies=dies: dies)  # type: ignore[misc]
        died = threading.Event()

        def after_death(key: str, pattern: str = pattern, died: threading.Event = died) -> None:
            if is_like(key, pattern):
                died.wait()

        waits = Faults(before_create=after_death)
        other = start_group(run, 0, 2, faults=lambda _, waits=waits: waits)  # type: ignore[misc]
        processes = victim.processes
        wait_until("the victim's death", lambda dead=processes: all(process.error is not None for process in dead))
        died.set()
        errors = [process.error for process in processes]
        assert any(isinstance(error, Killed) for error in errors), name
        assert all(isinstance(error, Killed | GroupError) for error in errors), name
        again = start_group(run, 1, 2, attempt=2)
        assert states([other, again]) == undisturbed, name


def test_values_that_cannot_be_averaged_in_one_process_decline_the_whole_contribution(tmp_path: Path) -> None:
    def gradient(rank: int, round_: int, count: int) -> Floats:
        values = gradient_of(rank, round_, count)
        if (rank, round_) == (1, 2):
            values[count // 2] = np.nan
        return values

    for codec in ("fp32", "int8"):
        algorithm = Algorithm(codec=codec)
        expected = states(started(tmp_path / codec / "alone", (1, 1), algorithm, gradient=gradient))
        groups = started(tmp_path / codec / "groups", (2, 4), algorithm, gradient=gradient)
        assert states(groups) == expected, codec
        participants = [outcome.participants for outcome in groups[0].processes[1].outcomes]
        assert participants == [(0, 1), (0,), (0, 1), (0, 1)], codec


def test_damage_has_the_same_effect_whatever_the_number_of_processes(tmp_path: Path) -> None:
    def damaged(pattern: str) -> Callable[[int], Faults]:
        def rewrite(key: str, body: bytes) -> bytes:
            return body[:-8] + bytes(8) if is_like(key, pattern) and len(body) > 4096 else body

        return lambda _: Faults(rewrite=rewrite)

    patterns = {
        "contribution": ("contributions/00001/00000002-", "contributions/00001/00000002-000001-0003"),
        "shard": ("reduced/*/00000002",) * 2,
    }
    for name, (alone, in_parts) in patterns.items():
        expected = states(started(tmp_path / name / "alone", (1, 1), Algorithm(), faults=damaged(alone)))
        groups = started(tmp_path / name / "groups", (2, 4), Algorithm(), faults=damaged(in_parts))
        assert states(groups) == expected, name
