"""Replicas on machines of different speeds, and spot interruptions: the replica's code on virtual time.

Each replica runs DiLoCo as a trainer does; an inner step takes the seconds that its machine needs. Requests to S3 take
no time here: what they add is in the benchmark `rendezvous`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

from bench.table import Row
from muster.contract.run.commit import Commit
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.phases.synchronizer import Synchronizer
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import StoppedError
from muster.replica.rounds.round_context import RoundContext
from muster.replica.wire import rendezvous_keys
from tests.exploration.schedules import fair
from tests.exploration.simulated import simulated
from tests.exploration.trainers import Silent
from tests.exploration.world import Process, Setting, World
from tests.support.data_position import DataPosition

_STEP_SECONDS = 1.0  # an inner step on the fastest machine
_SYNC_EVERY = 100
_ROUNDS = 20
_GRACE_SECONDS = 30.0


@dataclass
class _Replicas:
    """What the processes of one run did."""

    speeds: Sequence[float]  # of each rank: inner steps of the fastest per inner step of this one
    folder: Path | None = None  # of the checkpoints
    rounds: int = _ROUNDS
    steps: dict[int, list[int]] = field(default_factory=dict)  # of each rank, by process: its inner steps

    def train(self, process: Process, context: RoundContext) -> None:
        """A trainer's loop."""
        rank = process.rank
        rendezvous = Rendezvous.open(context, rank, process.attempt, Silent())
        parameters = np.zeros(1024, np.float32)
        counter = DataPosition()
        outer = DiLoCo(
            rendezvous,
            parameters,
            Algorithm(_SYNC_EVERY),
            trainer_state={"counter": counter},
            checkpoint_dir=None if self.folder is None else self.folder / str(rank),
        )
        made = self.steps.setdefault(rank, [])
        made.append(0)
        while outer.round < self.rounds:
            process.wait(process.stop, _STEP_SECONDS * self.speeds[rank])
            parameters += np.random.default_rng(counter.position).standard_normal(1024).astype(np.float32)
            counter.position += 1
            made[-1] += 1
            outer.step()


def run() -> list[Row]:
    """All rows; about a minute."""
    # The replicas would print their metrics.
    with simulated(), redirect_stdout(StringIO()):
        return [*_share_rows(), *_straggler_rows(), *_interruption_rows()]


def _share_rows() -> list[Row]:
    speeds = (1.0, 1.5, 2.0, 4.0)
    rows = []
    for needed in (1, 2):
        with _trained(speeds, needed) as (world, replicas):
            share = _counted(world) / sum(map(sum, replicas.steps.values()))
        with _waiting_in_vain(), _trained(speeds, needed) as (before, waiting):
            peer = _counted(before) / sum(map(sum, waiting.steps.values()))
        note = f"{world.seconds:,.0f} s; peer: full phases only, {before.seconds:,.0f} s"
        name = f"share of the tokens that count, machines 1x, 1.5x, 2x, 4x slower, min_participants {needed}"
        rows.append(Row(name, share, "x", ">= 0.9", peer, note))
    return rows


def _straggler_rows() -> list[Row]:
    """Seven equal machines alone, and with one that is four times slower."""
    with _trained((1.0,) * 7, 7) as (world, _):
        alone = world.seconds
    with _trained((*(1.0,) * 7, 4.0), 7) as (world, replicas):
        share = _counted(world) / sum(map(sum, replicas.steps.values()))
    with _waiting_in_vain(), _trained((*(1.0,) * 7, 4.0), 7) as (before, _):
        peer = before.seconds / alone
    note = f"{_ROUNDS} rounds of {_SYNC_EVERY} steps; {share:.1%} of the tokens count; peer: full phases only"
    return [
        Row(
            "wall time with one 4x straggler of 8 against the 7 alone",
            world.seconds / alone,
            "x",
            "<= 1.05",
            peer,
            note,
        )
    ]


def _interruption_rows() -> list[Row]:
    """Rank 0 of four is interrupted in the middle of a phase and comes back after five minutes."""
    rows = []
    for warned, aim in ((True, "== 0"), (False, f"<= {_SYNC_EVERY}")):
        lost = []
        for second in (20, 150, 199, 250, 333):
            with _trained((1.0,) * 4, 3, (second, warned)) as (world, replicas):
                lost.append(sum(replicas.steps[0]) - _counted(world, 0))
        name = f"steps lost on a spot interruption {'with' if warned else 'without'} its warning"
        rows.append(
            Row(name, max(lost), "steps", aim, None, f"the most of {len(lost)} interruptions; sync_every {_SYNC_EVERY}")
        )
    return rows


@contextmanager
def _trained(
    speeds: Sequence[float], min_participants: int, interruption: tuple[float, bool] | None = None
) -> Iterator[tuple[World, _Replicas]]:
    """A run to its end. `interruption`: when, and whether with the warning."""
    with TemporaryDirectory() as folder:
        # Only interrupted replicas need their checkpoints, which take real time.
        replicas = _Replicas(speeds, Path(folder), 8) if interruption else _Replicas(speeds)
        setting = Setting(len(speeds), min_participants, replicas.rounds, 10, _GRACE_SECONDS, connections=2)
        world = World(setting, replicas.train)
        for rank in range(len(speeds)):
            world.start(rank)
        try:
            _finish(world, interruption)
            yield world, replicas
        finally:
            world.end()


def _finish(world: World, interruption: tuple[float, bool] | None) -> None:
    while world.living or world.timers:
        if interruption is not None and world.seconds >= interruption[0]:
            victim = next(process for process in world.living if process.rank == 0)
            if interruption[1]:
                victim.sigterm()
            else:
                world.kill(victim)
            world.timers.append((world.seconds + 300, 0))
            interruption = None
        if world.timers:
            world.happen()
        able = [process for process in world.living if not process.is_stuck]
        if able:
            world.take_step(fair(world, able))
        else:
            world.seconds = min(seconds for seconds, _ in world.timers)
    problems = [process.error for process in world.processes if process.error and not process.killed]
    assert all(isinstance(error, StoppedError) for error in problems), problems


@contextmanager
def _waiting_in_vain() -> Iterator[None]:
    """Replicas that give full phases only."""
    never: Callable[[Synchronizer], bool] = lambda _: False  # noqa: E731
    with patch.object(Synchronizer, "_is_late", never):
        yield


def _counted(world: World, rank: int | None = None) -> float:
    """The samples that the commits count, of one rank or of all."""
    total = 0.0
    round_ = 1
    while world.store.exists(rendezvous_keys.commit(round_)):
        commit = Commit.from_json(world.store.written[rendezvous_keys.commit(round_)], "commit")
        total += sum(member.weight for member in commit.members if rank in {None, member.rank})
        round_ += 1
    return total
