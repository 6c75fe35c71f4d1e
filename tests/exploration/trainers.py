"""The loops that the explored processes run: the global state alone, and DiLoCo. The world sees every mean."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Outer
from muster.replica.errors import StoppedError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.frontends.array_packing import ArrayPacking
from muster.replica.metrics import Metrics
from muster.replica.parts.cut import Cut
from muster.replica.parts.link import by_first
from muster.replica.rounds.exchange import Exchange, LocalUpdate, Outcome
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.rounds.round_context import RoundContext
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.packing import Packing
from tests.exploration.world import Process
from tests.support.copied_array import CopiedArray


def train_arrays(process: Process, context: RoundContext) -> None:
    """One pseudo-gradient per round, given to the replicated state, until the rank's or the run's last round."""
    world, link = process.world, context.link
    rendezvous = Rendezvous.open(context, process.rank, process.attempt, Metrics())
    start = np.full(world.setting.count, process.rank, np.float32)
    packing: Packing = ArrayPacking(start)
    if link.size > 1:
        packing = CopiedArray(start, process.group.link("training", link.rank))
    state = ReplicatedState.join(rendezvous, packing, Witnessed(process))
    held = packing.cut.held(packing.cut.parts[0])
    last = world.setting.last_round(process.rank)
    while (done := state.state.round) < last and not rendezvous.has_ended:
        process.round = done
        world.flips(process, state.state)
        gradient = process.work(link.rank, done + 1)[held].copy()
        update = LocalUpdate(gradient, (process.rank + 1) / link.size, count=world.setting.count)
        exchange = state.advance(update)
        if exchange is None or not exchange.took_part:
            process.left_out += 1
        else:
            world.saw_members(exchange.commit, rendezvous.claim, gradient, held.start)
    process.round = state.state.round
    world.saw_state(state.state, held.start)
    by_first(link, lambda: rendezvous.finish("its trainer returned"))


ALGORITHMS: dict[str, Algorithm] = {
    "at once": Algorithm(sync_every=2),
    "long": Algorithm(sync_every=5),
    "delayed": Algorithm(sync_every=3, delay=1, alpha=0.5),
    "eager": Algorithm(sync_every=1, eager=True),
}


class Reader:
    """Hands out a replica's items one after the other."""

    def __init__(self) -> None:
        self.drawn = 0

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.drawn = state_dict["drawn"]


class Silent(Metrics):
    """Prints nothing: the utilisation of virtual time means nothing."""

    def log(self, **_: float) -> None:
        return


def train_diloco(process: Process, context: RoundContext) -> None:
    """The front end for arrays, with a data position that a rerun continues. One item for each inner step."""
    world, setting = process.world, process.world.setting
    rendezvous = Rendezvous.open(context, process.rank, process.attempt, Silent())
    parameters = np.full(setting.count, process.rank, np.float32)
    reader = Reader()
    algorithm = Witnessed(process, ALGORITHMS[setting.algorithm])
    folder = Path(f"/rank-{process.rank}")
    outer = DiLoCo(rendezvous, parameters, algorithm, trainer_state={"reader": reader}, checkpoint_dir=folder)
    steps = _Steps(process, rendezvous, outer)
    steps.resume(reader.drawn)
    assert rendezvous.training is not None
    state = rendezvous.training.state
    last = setting.last_round(process.rank)
    while outer.round < last and not rendezvous.has_ended:
        process.round = state.round
        if setting.paces:
            process.wait(process.stop, setting.paces[process.rank])
        reader.drawn += 1
        steps.items.append(reader.drawn)
        parameters -= world.work(process.rank, outer.round + 1)
        steps.judge(outer.step())
    steps.judge(outer.finish())
    if process.stop.is_set():
        # As `call_trainer`.
        raise StoppedError
    process.round = state.round
    world.saw_state(state)
    rendezvous.finish("its trainer returned")


class _Steps:
    """What the items of a process's inner steps come to: which contribution carries them, and what it is told of it."""

    def __init__(self, process: Process, rendezvous: Rendezvous, outer: DiLoCo) -> None:
        self.items: list[int] = []
        self._process, self._rendezvous = process, rendezvous
        self._exchange, self._give = rendezvous.exchange, rendezvous.give
        self._epochs: dict[int, int] = {}
        rendezvous.exchange = self._witnessed  # type: ignore[method-assign]
        rendezvous.give = self._given  # type: ignore[method-assign]
        self._synchronizer = synchronizer = outer._synchronizer
        start_over = synchronizer._start_over

        def drop() -> None:
            self.items.clear()
            start_over()

        synchronizer._start_over = drop  # type: ignore[method-assign]

    def resume(self, drawn: int) -> None:
        """The items of a phase that was interrupted: the last ones."""
        number = int(self._synchronizer._samples[0])
        self.items += range(drawn - number + 1, drawn + 1)
        self._process.world.seen["a phase is resumed"] += number > 0

    def _witnessed(self, round_: int, update: LocalUpdate) -> Exchange:
        self._note(round_, update)
        return self._exchange(round_, update)

    def _given(self, round_: int, update: LocalUpdate) -> None:
        self._note(round_, update)
        self._process.world.seen["a phase is given by a process that ends"] += 1
        self._give(round_, update)

    def _note(self, round_: int, update: LocalUpdate) -> None:
        given = int(update.weight)
        epoch = self._epochs[round_] = self._rendezvous.claim.epoch
        self._process.world.gave[round_, self._process.rank, epoch] = self.items[:given]
        del self.items[:given]

    def judge(self, outcome: Outcome | None) -> None:
        """A process takes its steps for counted if and only if the round counts what it has contributed."""
        if outcome is None:
            return
        world = self._process.world
        commit = world.last_commit(outcome.round)
        own = (self._process.rank, self._epochs.get(outcome.round))
        counts = not commit.void and own in {(member.rank, member.epoch) for member in commit.members}
        if outcome.took_part != counts:
            told = "counted" if outcome.took_part else "dropped"
            world.breaks(f"{self._process.name} takes its steps of round {outcome.round} for {told}")


class Witnessed(Algorithm):
    """An algorithm that reports every applied mean to the world."""

    def __init__(self, process: Process, algorithm: Algorithm = Algorithm()) -> None:  # noqa: B008 - it is frozen
        super().__init__(**asdict(algorithm))
        object.__setattr__(self, "_process", process)

    @property
    def outer(self) -> Outer:
        return WitnessedOuter(self._process)  # type: ignore[attr-defined]


class WitnessedOuter(Outer):
    """The outer optimizer of one process."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        object.__setattr__(self, "_process", process)

    def estimated(self, state: GlobalState, gradient: Floats, optimized: int, cut: Cut | None = None) -> Floats:
        # No state of the run.
        return Outer(self.optimizer, self.fragments).estimated(state, gradient, optimized, cut)

    def apply(self, state: GlobalState, mean: Floats, optimized: int | None = None, cut: Cut | None = None) -> None:
        world = self._process.world  # type: ignore[attr-defined]
        first = 0 if cut is None else cut.held(cut.parts[0]).start
        world.saw_state(state, first)
        super().apply(state, mean, optimized, cut)
        world.saw_mean(state.round, mean, first)
        world.saw_state(state, first)
