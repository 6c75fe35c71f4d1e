"""What all front ends share: the progress that they show, and the template of DiLoCo: join, step, finish, resume."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from pathlib import Path

from muster.contract.run.time_use import Activity
from muster.options import offers
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.codecs import codec_named
from muster.replica.frontends.phase_states import PhaseStates, StateId, StatesBetweenRounds
from muster.replica.frontends.saved_state import SavedState
from muster.replica.model.final_model import FinalModel
from muster.replica.model.model_folder import Wishes
from muster.replica.model.weights_writer import TensorSource
from muster.replica.parts.link import Link
from muster.replica.parts.packing import Packing
from muster.replica.phases.interrupted_phase import Phase
from muster.replica.phases.synchronizer import OwnState, Synchronizer
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import ParametersError
from muster.replica.resizing.states import ResizedStates, resized_objects
from muster.replica.rounds.exchange import RoundOutcome
from muster.replica.rounds.round_context import log
from muster.replica.states.plain_state import StateDict, Stateful, is_finite
from muster.replica.states.state_buffer import PlainArrays, packed_state, unpacked_state
from muster.replica.states.state_tree import Arrays
from muster.replica.statistics.stopwatch import Stopwatch


def check_type(parameter: str, found: object, kind: type | tuple[type, ...], allowed: str) -> None:
    """Return if the argument `found` of `parameter` is of a type of `kind`.

    Raises:
        ParametersError: it is not; names the parameter, what was found and what is `allowed`.
    """
    if not isinstance(found, kind):
        message = f"{parameter} is of type {type(found).__name__}; allowed: {allowed}."
        raise ParametersError(message)


def check_first_process(rendezvous: Rendezvous, what: str) -> None:
    """Return if this process exchanges for its replica: `what` does not divide the parameters among processes.

    Raises:
        ParametersError: it is not the first process of its replica.
    """
    group = rendezvous.context.group
    if not group.is_first:
        message = (
            f"{what} exchanges all parameters from one process, and this is process {group.rank} of its replica's "
            f"{group.size}; allowed: the first process alone, or muster.torch.DiLoCo in all of them."
        )
        raise ParametersError(message)


def check_rendezvous(found: object) -> None:
    """Return if `found` is a rendezvous; raises as `check_type`."""
    check_type("rendezvous", found, Rendezvous, "the context's rendezvous (context.rendezvous)")


@dataclass(frozen=True)
class StatePart:
    """A part of the trainer's own state that can be restored by itself.

    Attributes:
        place: the keys under which it lies in a whole state.
    """

    save: Callable[[], StateDict]
    load: Callable[[StateDict], object]
    place: tuple[str, ...]


def checked_folder(found: str | Path | None) -> Path | None:
    """The argument `checkpoint_dir` as a path; raises as `check_type`."""
    if found is None:
        return None
    check_type("checkpoint_dir", found, (str, Path), "a path, such as context.checkpoint_dir, or None")
    return Path(found)


def check_final_model(rendezvous: Rendezvous, found: object) -> None:
    """Return if `found` can be used: its files are there in the replica's first process, which writes them.

    Raises:
        ParametersError: it cannot.
    """
    check_type("final_model", found, FinalModel, "a FinalModel, such as FinalModel([model.config, tokenizer])")
    if isinstance(found, FinalModel) and rendezvous.context.group.is_first:
        found.check_paths()


class FrontEnd(ABC):
    """Progress of a replica's training."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch

    @property
    @abstractmethod
    def round(self) -> int:
        """The last round to which this replica has contributed or whose result it has applied; 0 before the first."""

    @property
    def utilisation(self) -> float:
        """Compute / wall of the last round: 1 minus the share of time that the exchange blocked the training loop."""
        return self._stopwatch.utilisation

    @property
    def blocked_seconds(self) -> float:
        """Seconds for which the last round blocked the training loop."""
        return self._stopwatch.blocked_seconds


class DiLoCoFrontEnd(FrontEnd):
    """The DiLoCo of any library. A subclass knows its library's parameters and how to pack its own state."""

    _one_saves = False
    """Whether the first process of a replica saves the state for all."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        packing: Packing,
        algorithm: Algorithm,
        *,
        trainer_state: Mapping[str, Stateful] | None,
        checkpoint_dir: str | Path | None,
        final_model: FinalModel,
    ) -> None:
        """Join the run: overwrite the parameters with the run's, and restore the replica's own state.

        A subclass sets what `_own_state`, `_load_own_state` and `_stored` need before it calls this.

        Raises:
            ParametersError: an argument of a wrong type, or another model than the run's.
            AlgorithmError: other settings than the run's.
            FencedError, StoppedError, RendezvousError
        """
        check_type("algorithm", algorithm, Algorithm, "an Algorithm, such as Algorithm(sync_every=500)")
        if algorithm.fragments > packing.count:
            message = f"fragments is {algorithm.fragments:,}; allowed: 1 to {packing.count:,}, the values of the model."
            raise ParametersError(message)
        folder = checked_folder(checkpoint_dir)
        self._rendezvous = rendezvous
        named = {} if trainer_state is None else trainer_state
        check_type("trainer_state", named, Mapping, "a dict of names to objects with state_dict()")
        self._trainer_state = dict(named)
        for name, item in self._trainer_state.items():
            allowed = "an object with state_dict() and load_state_dict()"
            check_type(f"trainer_state[{name!r}]", item, Stateful, allowed)
        check_final_model(rendezvous, final_model)
        # Now, not at the end: what cannot be stored is an error before anything is trained.
        self._stored(final_model)
        arrays = self._arrays_of_states()
        self._saved = SavedState(rendezvous, folder, packing.link, arrays)
        cut = packing.cut_for(codec_named(algorithm.codec), algorithm.fragments)
        resized = ResizedStates(rendezvous, folder, packing.link, cut, one_saves=self._one_saves)
        resized.adopt(arrays, self._resized)
        own = OwnState(self._keep, self._heal, self._save_if_due, self._clear)
        self._synchronizer = Synchronizer(rendezvous, packing, algorithm, own, folder)
        self._tiers = self._states_between_rounds(packing.link, arrays, algorithm.interval)
        super().__init__(self._synchronizer.stopwatch)
        rendezvous.departure.leave_with(Wishes(final_model, lambda: self._stored(final_model)), self.finish)
        # What to restore if a phase diverges before any state is saved.
        self._first = None if self._restore() else packed_state(self.state_dict(), arrays)
        rendezvous.statistics.times.ready()

    @property
    def round(self) -> int:
        """The last round to which this replica has contributed or whose result it has applied; 0 before the first."""
        return self._synchronizer.round

    @property
    def steps(self) -> int:
        """Inner steps since the last merge: not 0 in a rerun that continues in the middle of a phase."""
        return self._synchronizer.steps

    def step(self, samples: float = 1.0) -> RoundOutcome | None:
        """Call this after every inner step; every `sync_every` of them the parameters are exchanged.

        Args:
            samples: samples or tokens of this inner step, in this process; 0 for a step without any. Their sum over the
                steps and processes is the replica's weight in the round's mean. A round without any does not count.

        Returns:
            The outcome of the round that was merged into the parameters in this step; None if there was none.

        Raises:
            ParametersError: samples is negative, infinite or NaN.
            FencedError, StoppedError, RendezvousError, DivergedError: the parameters keep their local values.
            WatchError: a rule of `watch` ends the attempt. Let it pass.
            RunEndedError: the run has ended (`on_early_finish: stop`), and the trainer was called on. Let it pass.
        """
        return self._synchronizer.step(samples)

    def end_round(self) -> RoundOutcome | None:
        """Exchange the steps since the last round now, although they are fewer than `sync_every`.

        For a training whose number of steps is no multiple of `sync_every`. All replicas call it after the same step.

        Returns:
            The outcome of the round; None if no step has been trained since the last one.

        Raises:
            As `step`.
        """
        return self._synchronizer.end_round()

    def finish(self) -> RoundOutcome | None:
        """Call this after the last step: waits for a running exchange; the parameters are then the global ones.

        It ends this replica's part in the run. The last replica that calls it writes the run's model.

        Returns:
            The outcome of the round that was still running; None if there was none.

        Raises:
            FencedError, StoppedError, RendezvousError, DivergedError
            ParametersError, TrainerError: what `final_model` names fails.
        """
        return self._synchronizer.finish()

    def state_dict(self) -> StateDict:
        """The replica's own state and the round that it belongs to. The global state is in the rendezvous."""
        trainer = {name: item.state_dict() for name, item in self._trainer_state.items()}
        return {"round": self.round, "trainer": trainer, **self._own_state()}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ParametersError: it belongs to a round that the run has not reached, or to another trainer.
        """
        expected = {"round", "trainer", *self._own_state()}
        if set(state_dict) != expected:
            message = f"state_dict has the keys {_listed(state_dict)}; allowed: {_listed(expected)}."
            raise ParametersError(message)
        if state_dict["round"] > self.round:
            message = f"The state belongs to round {state_dict['round']}, but the run is in round {self.round}."
            raise ParametersError(message)
        stored: Mapping[str, StateDict] = state_dict["trainer"]
        if stored.keys() != self._trainer_state.keys():
            message = (
                f"trainer_state has the names {_listed(self._trainer_state)}; allowed: {_listed(stored)}, "
                f"the names of the state stored in round {state_dict['round']}."
            )
            raise ParametersError(message)
        for name, item in self._trainer_state.items():
            item.load_state_dict(stored[name])
        self._load_own_state(state_dict)

    @abstractmethod
    def _stored(self, final_model: FinalModel) -> TensorSource:
        """The tensors of the model as they are now, as they are stored at the end of a run.

        Raises:
            ParametersError: some cannot be stored.
        """

    @abstractmethod
    def _own_state(self) -> StateDict:
        """What the subclass restores beside the trainer's state."""

    @abstractmethod
    def _load_own_state(self, state_dict: StateDict) -> None:
        """Restore what `_own_state` returned."""

    def _resized(self, readers: Sequence[Callable[[], StateDict]], rank: int, size: int) -> StateDict:
        """The state of process `rank` of `size`, from those of a group of another size; see `resized_states`.

        A state may be a part of what `state_dict` returns: what is small of it.
        """
        states = [read() for read in readers]
        return {
            **states[rank % len(states)],
            "trainer": resized_objects(self._trainer_state, [state["trainer"] for state in states], rank, size),
        }

    def _parts(self) -> dict[str, StatePart]:
        """What can be restored by itself, by name."""
        return {
            f"trainer_state[{name!r}]": StatePart(item.state_dict, item.load_state_dict, ("trainer", name))
            for name, item in self._trainer_state.items()
        }

    @staticmethod
    def _arrays_of_states() -> Arrays:
        """How the arrays of states are stored: a trainer of arrays may have objects of PyTorch as well."""
        if "torch" not in sys.modules:
            return PlainArrays()
        from muster.replica.frontends.torch_arrays import TorchArrays  # noqa: PLC0415 - imports PyTorch

        return TorchArrays()

    def _states_between_rounds(self, link: Link, arrays: Arrays, interval: int) -> PhaseStates | None:
        """Those that the run's spec asks for; None if it asks for none."""
        wanted = self._rendezvous.outside.checkpoints
        if wanted is None:
            return None
        offered = offers("replica.inner_states", StatesBetweenRounds)
        return next((offer.of(self._rendezvous, link, arrays, interval, wanted) for offer in offered), None)

    def _save_if_due(self) -> None:
        if self._tiers is not None:
            self._tiers.after_step(StateId(self.round, self.steps), self._phase_state, self._saving)

    @contextmanager
    def _saving(self) -> Iterator[None]:
        with self._stopwatch.blocked(), self._rendezvous.statistics.times.stage(Activity.SAVING):
            yield

    def _phase_state(self) -> StateDict | None:
        """The replica's own state and the present phase, in the memory of the training."""
        phase = self._synchronizer.open_phase()
        return None if phase is None else {"own": self.state_dict(), "phase": phase}

    def _clear(self) -> None:
        if self._tiers is not None:
            self._tiers.clear()

    def _keep(self, round_: int, whole: bool) -> Callable[[], None]:
        state = {**self.state_dict(), "round": round_}
        write = self._saved.capture(state, whole=whole)
        # What an interrupted replica saves is in its checkpoints.
        write_too = None if self._tiers is None or whole else self._tiers.ended_phase(round_, lambda: state)

        def save() -> None:
            write()
            if write_too is not None:
                write_too()
            if self._saved.is_kept:
                self._first = None

        return save

    def _restore(self) -> bool:
        """Load the newest state if there is one, and go on in the phase that was interrupted."""
        link = self._rendezvous.context.link
        phase = self._synchronizer.interrupted()
        if self._continued(phase):
            return True
        last, epoch = (self.round, None) if phase is None else (phase.given, phase.epoch)
        found = self._saved.load(link, last, epoch)
        if phase is not None and not all(link.gather(found is not None and found["round"] == last)):
            # The copy of its state is damaged or incomplete.
            phase, found = None, self._saved.load(link, self.round)
        if found is not None:
            self.load_state_dict({**found, "round": min(found["round"], self.round)})
        if phase is not None:
            self._synchronizer.resume(phase)
        if self._tiers is not None:
            self._tiers.begin(self.round, self.steps)
        return found is not None

    def _continued(self, stopped: Phase | None) -> bool:
        """Whether the replica continues from an inner state that was saved between two rounds.

        Not where it was asked to stop later in that phase, as `stopped` says.
        """
        if self._tiers is None:
            return False
        found = self._tiers.newest(self.round, self._rendezvous.rounds.seen.counted(self.round))
        if found is None or (stopped is not None and stopped.steps >= found.id.step):
            return False
        self.load_state_dict(found.state["own"])
        if found.id.step:
            self._synchronizer.resume(Phase(**found.state["phase"]))
        self._tiers.resumed(found)
        self._tiers.begin(self.round, self.steps)
        return True

    def _heal(self) -> None:
        """Restore the parts that hold NaN or infinity from the last saved state, or from the one at the start."""
        parts = self._parts()
        link = self._rendezvous.context.link
        spoilt = link.gather([name for name, part in parts.items() if not is_finite(part.save())])
        names = sorted({name for found in spoilt for name in found})
        state = self._saved.load(link, self.round)
        if state is None and self._first is not None:
            state = unpacked_state(self._first, self._arrays_of_states())
        if state is None:
            return
        for name in names:
            stored: StateDict = reduce(getitem, parts[name].place, state)
            if is_finite(stored):
                parts[name].load(stored)
                log.warning("round=%d event=healed part=%s state_of_round=%d", self.round, name, state["round"])
            else:
                log.warning(
                    "round=%d event=not-healed part=%s reason='its stored state is not finite'", self.round, name
                )


def _listed(names: Mapping[str, object] | set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
