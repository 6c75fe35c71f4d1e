"""The invariants, judged when a schedule is over."""

from __future__ import annotations

import numpy as np

from muster.contract.run.commit import Commit
from muster.replica.errors import FencedError
from muster.replica.wire import keys
from muster.replica.wire.binary_format import HEADER_BYTES, Floats, decode_blocks
from muster.replica.wire.blocks import Blocks
from tests.exploration.world import Killed, World

DECIDING = ("commits/", "amendments/", "manifests/", "claims/", "initial_state")


def problems(world: World) -> list[str]:
    """Everything that went wrong; empty if nothing did."""
    return [
        *world.problems,
        *_written_twice(world),
        *_wrong_means(world),
        *_failures(world),
        *([] if world.living == [] else [f"{len(world.living)} processes wait for ever"]),
    ]


def _written_twice(world: World) -> list[str]:
    """At most one commit per round, and one of everything else that decides, deleted or not."""
    found = [key for key, times in world.store.creates.items() if key.startswith(DECIDING) and times > 1]
    return [f"{key} was written twice" for key in found] + [
        f"{key} was deleted" for key in world.store.deleted if key.startswith(DECIDING)
    ]


def _wrong_means(world: World) -> list[str]:
    """What was applied is the mean of what the commit names, each counted once."""
    found = []
    for round_, applied in world.means.items():
        commit = _last_commit(world, round_)
        ranks = [member.rank for member in commit.members]
        if len(set(ranks)) != len(ranks):
            found.append(f"round {round_} counts a rank twice: {ranks}")
        average = sum(member.weight for member in commit.members) / len(commit.members)
        first, *others = (
            _given(world, keys.contribution(round_, member.rank, member.epoch)) * np.float32(member.weight / average)
            for member in commit.members
        )
        mean = sum(others, first) * np.float32(1 / len(commit.members))
        if mean.tobytes() != applied:
            found.append(f"round {round_} is not the mean of what its commit names")
    return found


def _last_commit(world: World, round_: int) -> Commit:
    revision = 0
    while world.store.exists(keys.commit(round_, revision + 1)):
        revision += 1
    key = keys.commit(round_, revision)
    return Commit.from_json(world.store.written[key], key)


def _given(world: World, key: str) -> Floats:
    blocks = Blocks(world.setting.count)
    return decode_blocks(key, memoryview(world.sound[key])[HEADER_BYTES:], blocks, range(blocks.number))


def _failures(world: World) -> list[str]:
    """Processes end well, by being killed, or by being superseded; nothing else."""
    found = []
    for process in world.processes:
        superseded = any(other.rank == process.rank and other is not process for other in world.processes)
        expected = (Killed, FencedError) if superseded else Killed
        if process.error is not None and not isinstance(process.error, expected):
            found.append(f"rank {process.rank}, attempt {process.attempt}: {process.error!r}")
        elif process.ended and process.error is None and process.round < world.setting.rounds:
            found.append(f"rank {process.rank} ended in round {process.round}")
    return found
