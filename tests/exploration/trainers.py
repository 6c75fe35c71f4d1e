"""The loops that the explored processes run: the global state without a front end, which sees every mean."""

from __future__ import annotations

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Outer
from muster.replica.frontends.array_packing import ArrayPacking
from muster.replica.metrics import Metrics
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.rounds.round_context import RoundContext
from muster.replica.wire.binary_format import Floats
from tests.exploration.world import Process


def train_arrays(process: Process, context: RoundContext) -> None:
    """One pseudo-gradient per round, given to the replicated state, until the rank's or the run's last round."""
    world = process.world
    rendezvous = Rendezvous.open(context, process.rank, process.attempt, Metrics())
    start = np.full(world.setting.count, process.rank, np.float32)
    state = ReplicatedState.join(rendezvous, ArrayPacking(start), Witnessed(process))
    last = world.setting.last_round(process.rank)
    while (done := state.state.round) < last and not rendezvous.has_ended:
        process.round = done
        gradient = world.work(process.rank, done + 1)
        exchange = state.advance(LocalUpdate(gradient, float(process.rank + 1)))
        if exchange is None or not exchange.took_part:
            process.left_out += 1
        else:
            world.saw_members(exchange.commit, rendezvous.claim, gradient)
    process.round = state.state.round
    world.saw_state(state.state)
    rendezvous.finish("its trainer returned")


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

    def apply(self, state: GlobalState, mean: Floats, optimized: int | None = None) -> None:
        world = self._process.world  # type: ignore[attr-defined]
        world.saw_state(state)
        super().apply(state, mean, optimized)
        world.saw_mean(state.round, mean)
        world.saw_state(state)
