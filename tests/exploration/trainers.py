"""The loops that the explored processes run: the global state without a front end, which sees every mean."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Outer
from muster.replica.errors import StoppedError
from muster.replica.frontends.array_packing import ArrayPacking
from muster.replica.metrics import Metrics
from muster.replica.parts.cut import Cut
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.lookout import Lookout
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.rounds.round_context import RoundContext
from muster.replica.wire import keys
from muster.replica.wire.binary_format import Floats
from tests.exploration.world import Process, Stopped


def train_arrays(process: Process, context: RoundContext) -> None:
    """One pseudo-gradient per round, given to the replicated state, until the rank's or the run's last round."""
    world = process.world
    rendezvous = Rendezvous.open(context, process.rank, process.attempt, Metrics())
    start = np.full(world.setting.count, process.rank, np.float32)
    state = ReplicatedState.join(rendezvous, ArrayPacking(start), Witnessed(process))
    phases = Phases(process, rendezvous)
    last = world.setting.last_round(process.rank)
    while (done := state.state.round) < last and not rendezvous.has_ended:
        process.round = done
        weight = phases.train(done)
        gradient = world.work(process.rank, done + 1)
        exchange = state.advance(LocalUpdate(gradient, weight, before_giving=phases.give))
        if exchange is None or not exchange.took_part:
            process.left_out += 1
        else:
            world.saw_members(exchange.commit, rendezvous.claim, gradient)
    process.round = state.state.round
    world.saw_state(state.state)
    rendezvous.finish("its trainer returned")


class Phases:
    """The inner phases of one process, as the synchronizer runs them: they may end early, or be interrupted."""

    def __init__(self, process: Process, rendezvous: Rendezvous) -> None:
        self._process, self._rendezvous = process, rendezvous
        self._lookout = Lookout(rendezvous.context, process.rank)
        self._round = 0
        self._steps: tuple[int, ...] = ()

    def train(self, done: int) -> float:
        """Make the inner steps after round `done`; the weight of the contribution.

        Raises:
            StoppedError: the process was told to stop; what it has is given.
        """
        world, process = self._process.world, self._process
        setting, rank = world.setting, process.rank
        self._round, self._steps = done, ()
        if not setting.phase_steps:
            return float(rank + 1)
        stopped = world.stopped.get(rank)
        if stopped is not None and stopped.round == done:
            world.seen["a phase is resumed"] += 1
            self._steps = stopped.steps
        self._lookout.begin(done + 1, self._rendezvous.recent)
        pace = setting.paces[rank]
        for left in reversed(range(setting.phase_steps)):
            if process.wait(process.stop, pace):
                self._leave()
            self._steps += (world.inner_step(),)
            if self._lookout.is_late(pace * left):
                world.seen["a phase ends early"] += bool(left)
                break
        self._lookout.end()
        return float(len(self._steps) * (rank + 1))

    def give(self) -> None:
        """The steps are in the contribution now: no later process repeats them."""
        world, process = self._process.world, self._process
        if world.setting.phase_steps:
            world.stopped.pop(process.rank, None)
            self._note()

    def _note(self) -> None:
        claim = self._rendezvous.claim
        key = keys.contribution(self._round + 1, claim.rank, claim.epoch)
        self._process.world.steps_in[key] = self._steps

    def _leave(self) -> NoReturn:
        """Save the phase, and give it without waiting for the round."""
        world, rank = self._process.world, self._process.rank
        self._lookout.end()

        def save() -> None:
            world.stopped[rank] = Stopped(self._round, self._steps)
            self._note()

        if self._steps:
            world.seen["a phase is given by a process that ends"] += 1
            gradient = world.work(rank, self._round + 1)
            update = LocalUpdate(gradient, float(len(self._steps) * (rank + 1)), before_giving=save)
            self._rendezvous.leave(self._round + 1, update)
        raise StoppedError


class Witnessed(Algorithm):
    """DiLoCo that reports every applied mean to the world."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        object.__setattr__(self, "_process", process)

    @property
    def outer(self) -> Outer:
        return WitnessedOuter(self._process)  # type: ignore[attr-defined]


class WitnessedOuter(Outer):
    """The outer optimizer of one process."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        object.__setattr__(self, "_process", process)

    def apply(self, state: GlobalState, mean: Floats, optimized: int | None = None, cut: Cut | None = None) -> None:
        world = self._process.world  # type: ignore[attr-defined]
        world.saw_state(state)
        super().apply(state, mean, optimized, cut)
        world.saw_mean(state.round, mean)
        world.saw_state(state)
