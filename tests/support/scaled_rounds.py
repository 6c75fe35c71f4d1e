"""One run whose number of replicas changes while it trains: the real rounds and front end, in virtual time."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import StoppedError
from muster.replica.rounds.round_context import RoundContext
from tests.exploration.schedules import fair
from tests.exploration.simulated import scaled, simulated
from tests.exploration.trainers import ExploredDiLoCo, Silent
from tests.exploration.world import Process, Setting, World

FEWEST, GRACE_SECONDS = 2, 30.0
STARTS = 180.0, 420.0  # seconds from the request for a replica to the first line of its program
LOAD_SECONDS = 30.0


@dataclass
class ScaledRounds:
    """What became of a run.

    Attributes:
        times: when each round was committed, in seconds.
        passed: of each joiner, how many rounds were made without it once it was ready.
        failed: the replicas that have ended although they were not asked to, and those that were started again.
        states: the parameters that replicas hold after each round.
    """

    times: list[float] = field(default_factory=list)
    passed: dict[int, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    states: dict[int, set[bytes]] = field(default_factory=lambda: defaultdict(set))

    @property
    def longest_round(self) -> float:
        """The seconds of the longest round; the first one has waited for the replicas' jobs."""
        return max(later - earlier for earlier, later in pairwise(self.times))


def scaled_rounds(
    first: int, changes: Sequence[tuple[float, int]], rounds: int, step: float, steps: int
) -> ScaledRounds:
    """Train with `first` replicas, and from each of these times on (seconds, ascending) with another number.

    Args:
        step: the seconds of an inner step.
        steps: the inner steps of a round.
    """
    found, ready = ScaledRounds(), dict[int, int]()

    def train(process: Process, context: RoundContext) -> None:
        process.wait(process.stop, LOAD_SECONDS)
        rendezvous = Rendezvous.open(context, process.rank, process.attempt, Silent())
        parameters = np.zeros(process.world.setting.count, np.float32)
        own = {"trainer_state": None, "checkpoint_dir": None}
        outer = ExploredDiLoCo(rendezvous, parameters, Algorithm(sync_every=steps), None, 0, **own)
        if process.rank >= first:
            ready[process.rank] = len(found.times)
        while outer.round < rounds:
            process.wait(process.stop, step)
            parameters -= np.float32(1e-3 * (process.rank + 1))
            if (outcome := outer.step(1.0)) is not None:
                found.states[outcome.round].add(parameters.tobytes())
        outer.finish()

    world = World(_setting(first, max(number for _, number in changes), rounds), train)
    with simulated(), scaled(world.setting):
        try:
            _play(world, [(0.0, first), *changes], found.times)
        finally:
            world.end()
    assert not world.problems, world.problems
    counted = [world.last_commit(number + 1).named for number in range(len(found.times))]
    for rank, before in ready.items():
        found.passed[rank] = next(after for after, ranks in enumerate(counted[before:]) if rank in ranks)
    for process in world.processes:
        if not (process.error is None or isinstance(process.error, StoppedError)) or process.attempt > 1:
            found.failed.append(f"{process.name}: {process.error!r}")
    return found


def _play(world: World, changes: list[tuple[float, int]], times: list[float]) -> None:
    """Let all processes run to their ends; `times` gets those of the commits."""
    rng, wanted = random.Random(1), 0  # noqa: S311 - the same starts in every run
    while world.living or world.timers or changes:
        able = [process for process in world.living if not process.is_stuck]
        chosen = fair(world, able) if able else None
        due = min([at for at, _ in (*changes[:1], *world.timers)], default=inf)
        if chosen is not None and (chosen.wakes_at or world.seconds) <= due:
            world.take_step(chosen)
            times += [world.seconds] * (len(world.steps_at_commits) - len(times))
            continue
        world.seconds = max(world.seconds, due)
        if changes and changes[0][0] <= world.seconds:
            before, wanted = wanted, changes.pop(0)[1]
            world.timers += [(world.seconds + rng.uniform(*STARTS), rank) for rank in range(before, wanted)]
            for rank in range(wanted, before):
                world.close(rank)
        world.happen()


def _setting(first: int, most: int, rounds: int) -> Setting:
    return Setting(
        replicas=most,
        min_participants=FEWEST,
        rounds=rounds,
        share=0.75,
        start=first,
        snapshot_rounds=3,
        grace_seconds=GRACE_SECONDS,
        timeout_seconds=3_600.0,
        count=64,
    )
