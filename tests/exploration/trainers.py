"""The loops that the explored processes run: the global state alone, and DiLoCo. The world sees every mean."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Outer
from muster.replica.errors import StoppedError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.frontends.array_packing import ArrayPacking
from muster.replica.frontends.front_end import DiLoCoFrontEnd
from muster.replica.metrics import Metrics
from muster.replica.model.final_model import NO_WISHES
from muster.replica.parts.cut import Cut
from muster.replica.parts.link import Link, by_first
from muster.replica.rounds.exchange import Exchange, LocalUpdate, Outcome
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.rounds.round_context import RoundContext
from muster.replica.rounds.synchronizer import OwnState
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.packing import Packing
from tests.exploration.world import Process
from tests.support.copied_array import CopiedArray


def train_arrays(process: Process, context: RoundContext) -> None:
    """One pseudo-gradient per round, given to the replicated state, until the rank's or the run's last round."""
    world, link = process.world, context.link
    rendezvous = Rendezvous.open(context, process.rank, process.attempt, Silent())
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
    "fragments": Algorithm(sync_every=4, fragments=2),
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

    def show(self, numbers: Mapping[str, float]) -> None:
        return


class SharedDiLoCo(DiLoCo):
    """The front end for arrays in a replica of several processes, each of which exchanges its part."""

    def __init__(self, rendezvous: Rendezvous, array: Floats, algorithm: Algorithm, link: Link, **own: Any) -> None:
        self._arrays = ArrayPacking(array)
        packing = CopiedArray(array, link)
        DiLoCoFrontEnd.__init__(self, rendezvous, packing, algorithm, final_model=NO_WISHES, **own)


def train_diloco(process: Process, context: RoundContext) -> None:
    """The front end for arrays, with a data position that a rerun continues. One item for each inner step."""
    setting = process.world.setting
    inner, size = context.group.rank, context.group.size
    rendezvous = Rendezvous.open(context, process.rank, process.attempt, Silent())
    parameters = np.full(setting.count, process.rank, np.float32)
    reader = Reader()
    algorithm = Witnessed(process, ALGORITHMS[setting.algorithm])
    own: dict[str, Any] = {"trainer_state": {"reader": reader}, "checkpoint_dir": Path(f"/rank-{process.rank}")}
    outer = (
        DiLoCo(rendezvous, parameters, algorithm, **own)
        if size == 1
        else SharedDiLoCo(rendezvous, parameters, algorithm, process.group.link("training", inner), **own)
    )
    steps = _Steps(process, rendezvous, outer, reader)
    steps.resume(reader.drawn)
    assert rendezvous.training is not None
    state = rendezvous.training.state
    last = setting.last_round(process.rank)
    while outer.round < last and not rendezvous.has_ended:
        process.round = state.round
        if setting.paces:
            process.wait(process.stop, setting.paces[process.rank])
        reader.drawn += 1
        steps.made(reader.drawn)
        parameters -= process.work(inner, outer.round + 1)
        steps.judge(outer.step(1 / size))
    steps.judge(outer.finish())
    if any(context.link.gather(process.stop.is_set())):
        # As `call_trainer`.
        raise StoppedError
    process.round = state.round
    steps.saw_state(state)
    by_first(context.link, lambda: rendezvous.finish("its trainer returned"))


class _Steps:
    """What the items of a process's inner steps come to: which contribution carries them, and what it is told of it.

    Of each fragment a contribution carries the items since the last one.
    """

    def __init__(self, process: Process, rendezvous: Rendezvous, outer: DiLoCo, reader: Reader) -> None:
        self._process, self._rendezvous, self._reader = process, rendezvous, reader
        self._exchange, self._give = rendezvous.exchange, rendezvous.give
        self._epochs: dict[int, int] = {}
        rendezvous.exchange = self._witnessed  # type: ignore[method-assign]
        rendezvous.give = self._given  # type: ignore[method-assign]
        self._synchronizer = synchronizer = outer._synchronizer
        self._size = rendezvous.context.group.size
        self._items: list[list[int]] = [[] for _ in synchronizer._samples]
        self._carried: deque[list[int]] = deque()
        self._start_over, self._update = synchronizer._start_over, synchronizer._update
        self._given_last: list[int] = []
        self._keep = synchronizer._own.keep
        synchronizer._own = OwnState(self._kept, synchronizer._own.heal)
        synchronizer._start_over = self._dropped  # type: ignore[method-assign]
        synchronizer._update = self._updated  # type: ignore[method-assign, assignment]

    def made(self, item: int) -> None:
        """An inner step."""
        for items in self._items:
            items.append(item)

    def resume(self, drawn: int) -> None:
        """Go on with the items of a phase that was interrupted, if it is resumed."""
        world, synchronizer = self._process.world, self._synchronizer
        if not synchronizer.steps and not any(synchronizer._samples):
            return
        world.seen["a phase is resumed"] += 1
        left, items = world.left[self._process.rank]
        self._items = [list(carried) for carried in items]
        if left != drawn:
            world.breaks(f"{self._process.name} continues a phase that ended with item {left} after item {drawn}")

    def _kept(self, round_: int, whole: bool) -> Callable[[], None]:
        """The process saves its state, and if `whole` it leaves: another one may continue its phase."""
        if whole:
            items = [list(carried) for carried in self._items]
            synchronizer = self._synchronizer
            if synchronizer.round > synchronizer._training.state.round:
                # It waits for the round to which it has given.
                fragment = synchronizer._fragment(synchronizer.round)
                items[fragment] = self._given_last + items[fragment]
            self._process.world.left[self._process.rank] = self._reader.drawn, items
        return self._keep(round_, whole)

    def saw_state(self, state: GlobalState) -> None:
        for held, local in self._synchronizer._packing.cut.places():
            found = GlobalState(state.round, state.parameters[local], state.momentum[local])
            self._process.world.saw_state(found, held.start)

    def _dropped(self) -> None:
        for items in self._items:
            items.clear()
        self._start_over()

    def _updated(self, gradient: Floats, samples: float, part: slice, *rest: Any) -> LocalUpdate:
        """A contribution is made: it weighs what was trained since the last one of its fragment."""
        cut = self._synchronizer._packing.cut
        items = self._items[cut.parts.index(slice(*part.indices(cut.count)[:2]))]
        if round(samples * self._size) != len(items):
            self._process.world.breaks(f"{self._process.name} weighs {len(items)} items as {samples * self._size:g}")
        self._carried.append(list(items))
        items.clear()
        return self._update(gradient, samples, part, *rest)

    def _witnessed(self, round_: int, update: LocalUpdate) -> Exchange:
        self._note(round_)
        return self._exchange(round_, update)

    def _given(self, round_: int, update: LocalUpdate) -> None:
        self._note(round_)
        self._process.world.seen["a phase is given by a process that ends"] += 1
        self._give(round_, update)

    def _note(self, round_: int) -> None:
        epoch = self._epochs[round_] = self._rendezvous.claim.epoch
        self._given_last = self._process.world.gave[round_, self._process.rank, epoch] = self._carried.popleft()

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
        return WitnessedOuter(self._process, super().outer)  # type: ignore[attr-defined]


class WitnessedOuter(Outer):
    """The outer optimizer of one process."""

    def __init__(self, process: Process, outer: Outer) -> None:
        super().__init__(outer.optimizer, outer.fragments)
        object.__setattr__(self, "_process", process)

    def estimated(self, state: GlobalState, gradient: Floats, optimized: int, cut: Cut | None = None) -> Floats:
        # No state of the run.
        return Outer(self.optimizer, self.fragments).estimated(state, gradient, optimized, cut)

    def apply(self, state: GlobalState, mean: Floats, optimized: int | None = None, cut: Cut | None = None) -> None:
        world = self._process.world  # type: ignore[attr-defined]
        cut = Cut(state.parameters.size) if cut is None else cut
        self._show(state, cut)
        super().apply(state, mean, optimized, cut)
        part = self.part(state.round, cut.count)
        world.saw_mean(state.round, mean, cut.held(part).start - part.start)
        self._show(state, cut)

    def _show(self, state: GlobalState, cut: Cut) -> None:
        """Report what the process holds of the state to the world."""
        for held, local in cut.places():
            found = GlobalState(state.round, state.parameters[local], state.momentum[local])
            self._process.world.saw_state(found, held.start)  # type: ignore[attr-defined]
