"""The loops that the explored processes run: the global state alone, and DiLoCo. The world sees every mean."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Nesterov
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.frontends.array_packing import ArrayPacking
from muster.replica.frontends.front_end import DiLoCoFrontEnd
from muster.replica.model.final_model import NO_WISHES
from muster.replica.parts.cut import Cut
from muster.replica.parts.link import Link, by_first
from muster.replica.parts.packing import Packing
from muster.replica.phases.synchronizer import OwnState
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import StoppedError
from muster.replica.rounds.exchange import Exchange, LocalUpdate, RoundOutcome
from muster.replica.rounds.joining import join
from muster.replica.rounds.round_context import RoundContext
from muster.replica.statistics.metrics import Metrics
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import Floats, decode_header
from muster.replica.wire.headers import ContributionHeader
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
    state = join(rendezvous.rounds, packing, Witnessed(process))
    world.joined(process, state.round)
    rendezvous.departure.training = state
    held = packing.cut.held(packing.cut.parts[0])
    last = world.setting.last_round(process.rank)
    while (done := state.state.round) < last and not rendezvous.rounds.seen.has_ended:
        process.round = done
        world.flips(process, state.state)
        gradient = process.work(link.rank, done + 1)[held].copy()
        update = LocalUpdate(gradient, (process.rank + 1) / link.size, count=world.setting.count)
        if world.setting.start is not None and process.stop.is_set():
            # As a front end does.
            rendezvous.rounds.give(done + 1, update)
            raise StoppedError
        exchange = rendezvous.rounds.play(state, update)
        if exchange is None or not exchange.took_part:
            process.left_out += 1
        else:
            world.saw_members(exchange.commit, rendezvous.seat.claim, gradient, held.start)
    process.round = state.state.round
    world.saw_state(state.state, held.start)
    by_first(link, lambda: rendezvous.departure.finish("its trainer returned"))


ALGORITHMS: dict[str, Algorithm] = {
    "at once": Algorithm(sync_every=2),
    "long": Algorithm(sync_every=5),
    "delayed": Algorithm(sync_every=3, delay=1, alpha=0.5),
    "eager": Algorithm(sync_every=1, eager=True),
    "fragments": Algorithm(sync_every=4, fragments=2),
    "coded": Algorithm(sync_every=2, codec="int8", outlier_factor=4),
    "sparse": Algorithm(sync_every=2, codec="topk2-64", outlier_factor=4),
    "sparse, delayed": Algorithm(sync_every=3, delay=1, codec="topk2-64"),
    "sparse, eager": Algorithm(sync_every=1, eager=True, codec="topk2-64"),
    "sparse, fragments": Algorithm(sync_every=4, fragments=2, codec="topk2-64"),
    "coded, delayed": Algorithm(sync_every=3, delay=1, codec="int4"),
    "coded, eager": Algorithm(sync_every=1, eager=True, codec="int4"),
    "coded, far": Algorithm(sync_every=2, codec="bf16", far_codec="int4"),
    "coded, fragments": Algorithm(sync_every=4, fragments=2, codec="bf16", average="rda"),
}


class Reader:
    """Hands out a replica's items one after the other. Its state is as that of an inner optimizer."""

    def __init__(self) -> None:
        self.drawn = 0

    def state_dict(self) -> dict[str, Any]:
        return {"drawn": self.drawn, "state": {0: {"step": np.int64(self.drawn)}}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.drawn = state_dict["drawn"]
        # Of another type, it is no key.
        assert state_dict["state"][0]["step"] == self.drawn


class Silent(Metrics):
    """Prints nothing: the utilisation of virtual time means nothing."""

    def log(self, **_: float) -> None:
        return

    def show(self, numbers: Mapping[str, float]) -> None:
        return


class ExploredDiLoCo(DiLoCo):
    """The front end for arrays, the last ones of which are statistics.

    In a replica of several processes (`link`) each exchanges its part.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        array: Floats,
        algorithm: Algorithm,
        link: Link | None,
        statistics: int,
        **own: Any,
    ) -> None:
        self._arrays = ArrayPacking(array)
        packing: Packing = self._arrays if link is None else CopiedArray(array, link)
        packing.averaged += statistics
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
    link = process.group.link("training", inner) if size > 1 else None
    outer = ExploredDiLoCo(rendezvous, parameters, algorithm, link, setting.statistics, **own)
    steps = _Steps(process, rendezvous, outer, reader)
    steps.resume(reader.drawn)
    process.world.joined(process, outer.round)
    assert rendezvous.departure.training is not None
    state = rendezvous.departure.training.state
    last = setting.last_round(process.rank)
    # Half of the ranks look before each step whether they are asked to stop; the front end tells the others.
    looks = size == 1 and process.rank % 2 == 0
    while outer.round < last and not rendezvous.rounds.seen.has_ended and not (looks and process.stop.is_set()):
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
    by_first(context.link, lambda: rendezvous.departure.finish("its trainer returned"))


class _Steps:
    """What the items of a process's inner steps come to: which contribution carries them, and what it is told of it.

    Of each fragment a contribution carries the items since the last one.
    """

    def __init__(self, process: Process, rendezvous: Rendezvous, outer: DiLoCo, reader: Reader) -> None:
        self._process, self._rendezvous, self._reader = process, rendezvous, reader
        self._exchange, self._give = rendezvous.rounds.exchange, rendezvous.rounds.give
        self._epochs: dict[int, int] = {}
        self._ledger = _Ledger(process, rendezvous, outer)
        rendezvous.rounds.exchange = self._witnessed  # type: ignore[method-assign]
        rendezvous.rounds.give = self._given  # type: ignore[method-assign]
        self._synchronizer = synchronizer = outer._synchronizer
        self._size = rendezvous.context.group.size
        self._items: list[list[int]] = [[] for _ in synchronizer._samples]
        self._has_made = False
        self._carried: deque[list[int]] = deque()
        self._start_over, self._update = synchronizer._start_over, synchronizer._update
        self._given_last: list[int] = []
        self._keep = synchronizer._own.keep
        synchronizer._own = OwnState(self._kept, synchronizer._own.heal)
        synchronizer._start_over = self._dropped  # type: ignore[method-assign]
        synchronizer._update = self._updated  # type: ignore[method-assign, assignment]

    def made(self, item: int) -> None:
        """An inner step."""
        self._has_made = True
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
        """What saves the state. With `whole` the process leaves: another one may continue its phase, once written."""
        write = self._keep(round_, whole)
        if not whole:
            return write
        items = [list(carried) for carried in self._items]
        synchronizer = self._synchronizer
        if not self._has_made and not any(items):
            # It would take the place of the state that counts.
            self._process.world.breaks(f"{self._process.name} saves its state and has trained nothing")
        if synchronizer.round > synchronizer._training.state.round:
            # It waits for the round to which it has given.
            fragment = synchronizer._fragment(synchronizer.round)
            items[fragment] = self._given_last + items[fragment]
        drawn = self._reader.drawn

        def save() -> None:
            write()
            self._process.world.left[self._process.rank] = drawn, items

        return save

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
        self._ledger.gives(round_, update)
        exchange = self._exchange(round_, update)
        self._ledger.settles(round_, update)
        return exchange

    def _given(self, round_: int, update: LocalUpdate) -> None:
        self._note(round_)
        self._process.world.seen["a phase is given by a process that ends"] += 1
        self._ledger.gives(round_, update)
        self._give(round_, update)

    def _note(self, round_: int) -> None:
        epoch = self._epochs[round_] = self._rendezvous.seat.claim.epoch
        self._given_last = self._process.world.gave[round_, self._process.rank, epoch] = self._carried.popleft()

    def judge(self, outcome: RoundOutcome | None) -> None:
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


class _Ledger:
    """What a process sends and what it keeps are what it has trained: pseudo-gradients of rounds that count it.

    Its residual is that of the last contribution of its rank that counts.
    """

    def __init__(self, process: Process, rendezvous: Rendezvous, outer: DiLoCo) -> None:
        self._world, self._rank, self._rendezvous = process.world, process.rank, rendezvous
        self._name, self._packing = process.name, outer._synchronizer._packing
        self._joined, self._has_counted = outer.round, set[int]()  # in rounds of which fragments
        self._before: Floats | None = None

    def gives(self, round_: int, update: LocalUpdate) -> None:
        """The process is about to contribute."""
        if update.residual is None or not update.gradient.size:
            return
        residual = self._before = update.residual.values.copy()
        first, expected = self._first(round_), None
        counted = [number for number in range(1, round_) if self._counts(number) is not None]
        fragments = self._world.setting.fragments
        for number in reversed(counted):
            if number % fragments == round_ % fragments:
                expected = self._left(number, first)
                break
        # After rounds without this rank, a rerun may begin without a residual: it looks back to the newest snapshot.
        # It then lacks that of each fragment until a round of this fragment counts it.
        may_lack = round_ % fragments not in self._has_counted and self._joined not in counted
        wanted = np.zeros_like(residual) if expected is None else expected
        if not (np.allclose(residual, wanted, rtol=0, atol=1e-2) or (may_lack and not residual.any())):
            self._world.breaks(f"{self._name} adds another residual to round {round_} than the one that is left")
        self._world.sent[round_, self._rank, self._rendezvous.seat.claim.epoch, first] = update.gradient + residual

    def settles(self, round_: int, update: LocalUpdate) -> None:
        """The round is over for the process."""
        if update.residual is None or self._before is None or not update.residual.values.size:
            return
        counted = self._counts(round_)
        if counted is not None and counted > self._rendezvous.seat.epoch:
            # A successor counts: this process contributes to no further round.
            return
        if counted is not None:
            # What counts may be of a former process: it has sent what this one holds, and left another residual.
            self._has_counted.add(round_ % self._world.setting.fragments)
            expected = self._left(round_, self._first(round_))
        else:
            expected = self._before
        if not np.allclose(update.residual.values, expected, rtol=0, atol=1e-2):
            self._world.breaks(f"{self._name} keeps another residual of round {round_} than what it has not sent")

    def _counts(self, round_: int) -> int | None:
        """The claim under which this rank counts in a round that is committed."""
        if not self._world.store.exists(rendezvous_keys.commit(round_)):
            return None
        commit = self._world.last_commit(round_)
        epochs = [member.epoch for member in commit.members if member.rank == self._rank]
        return None if commit.void or not epochs else epochs[0]

    def _first(self, round_: int) -> int:
        """The first element of its part that this process holds."""
        part = self._packing.cut.parts[(round_ - 1) % self._world.setting.fragments]
        return int(self._packing.cut.held(part).start - part.start)

    def _left(self, round_: int, first: int) -> Floats:
        """What the contribution to a round has not sent."""
        epoch = self._counts(round_)
        assert epoch is not None
        wanted = self._world.sent[round_, self._rank, epoch, first]
        key = rendezvous_keys.contribution(round_, self._rank, epoch)
        sent = self._world.given(key)
        setting = self._world.setting
        exact = decode_header(key, memoryview(self._world.sound[key]), ContributionHeader).exact
        part = self._packing.cut.parts[(round_ - 1) % setting.fragments]
        statistics = max(0, part.stop - max(part.start, setting.count - setting.statistics))
        sent_here = sent[first : first + wanted.size]
        from_statistics = max(0, sent.size - statistics - first)
        if exact != statistics or not np.array_equal(sent_here[from_statistics:], wanted[from_statistics:]):
            self._world.breaks(f"{self._name} sends other statistics to round {round_} than it has")
        return wanted - sent_here


class Witnessed(Algorithm):
    """An algorithm that reports every applied mean to the world."""

    def __init__(self, process: Process, algorithm: Algorithm = Algorithm()) -> None:  # noqa: B008 - it is frozen
        super().__init__(**asdict(algorithm))
        object.__setattr__(self, "_process", process)

    @property
    def outer(self) -> Nesterov:
        return WitnessedOuter(self._process, super().outer)  # type: ignore[attr-defined]


class WitnessedOuter(Nesterov):
    """The outer optimizer of one process."""

    def __init__(self, process: Process, outer: Nesterov) -> None:
        super().__init__(**asdict(outer))
        object.__setattr__(self, "_process", process)

    def estimated(self, state: GlobalState, gradient: Floats, cut: Cut) -> Floats:
        # No state of the run.
        return Nesterov(**asdict(self)).estimated(state, gradient, cut)

    def apply(self, state: GlobalState, mean: Floats, cut: Cut) -> None:
        world = self._process.world  # type: ignore[attr-defined]
        self._show(state, cut)
        super().apply(state, mean, cut)
        part = cut.fragment_of(state.round)
        world.saw_mean(state.round, mean, cut.held(part).start - part.start)
        statistics = mean.size - cut.parameters_in(part)
        if statistics and not np.array_equal(state.parameters[cut.local(part)][-statistics:], -mean[-statistics:]):
            world.breaks(f"the statistics after round {state.round} are not their mean")
        self._show(state, cut)

    def _show(self, state: GlobalState, cut: Cut) -> None:
        """Report what the process holds of the state to the world."""
        for held, local in cut.places():
            found = GlobalState(state.round, state.parameters[local], state.momentum[local])
            self._process.world.saw_state(found, held.start)  # type: ignore[attr-defined]
