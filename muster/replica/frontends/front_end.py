"""What all front ends share: the progress that they show, and the template of DiLoCo: join, step, finish, resume."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import ParametersError
from muster.replica.frontends.common_state import load_common
from muster.replica.frontends.plain_state import StateDict, Stateful
from muster.replica.rounds.exchange import Outcome
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.round_context import checkpoints_of
from muster.replica.rounds.synchronizer import Synchronizer
from muster.replica.stopwatch import Stopwatch
from muster.replica.wire.packing import Packing


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

    def __init__(
        self,
        rendezvous: Rendezvous,
        packing: Packing,
        algorithm: Algorithm,
        trainer_state: Mapping[str, Stateful] | None,
        checkpoint_dir: Path | None,
    ) -> None:
        """Join the run: overwrite the parameters with the run's, and restore the replica's own state.

        A subclass sets what `_own_state` and `_load_own_state` need before it calls this.

        Raises:
            ParametersError: an argument of a wrong type, or another model than the run's.
            AlgorithmError: other settings than the run's.
            FencedError, StoppedError, RendezvousError
        """
        check_type("algorithm", algorithm, Algorithm, "an Algorithm, such as Algorithm(sync_every=500)")
        self._trainer_state = dict(trainer_state or {})
        for name, item in self._trainer_state.items():
            allowed = "an object with state_dict() and load_state_dict()"
            check_type(f"trainer_state[{name!r}]", item, Stateful, allowed)
        self._checkpoints = checkpoints_of(rendezvous.context, checkpoint_dir, "trainer")
        self._synchronizer = Synchronizer(rendezvous, packing, algorithm, self._keep, checkpoint_dir)
        super().__init__(self._synchronizer.stopwatch)
        found = (
            None if self._checkpoints is None else load_common(rendezvous.context.link, self._checkpoints, self.round)
        )
        if found is not None:
            self.load_state_dict(self._unpack(found))

    @property
    def round(self) -> int:
        """The last round to which this replica has contributed or whose result it has applied; 0 before the first."""
        return self._synchronizer.round

    def step(self, samples: float = 1.0) -> Outcome | None:
        """Call this after every inner step; every `sync_every` of them the parameters are exchanged.

        Args:
            samples: samples or tokens of this inner step, in this process; 0 for a step without any. Their sum over the
                steps and processes is the replica's weight in the round's mean. A round without any does not count.

        Returns:
            The outcome of the round that was merged into the parameters in this step; None if there was none.

        Raises:
            ParametersError: samples is negative, infinite or NaN.
            FencedError, StoppedError, RendezvousError, DivergedError: the parameters keep their local values.
            RunEndedError: the run has ended (`on_early_finish: stop`), and the trainer was called on. Let it pass.
        """
        return self._synchronizer.step(samples)

    def end_round(self) -> Outcome | None:
        """Exchange the steps since the last round now, although they are fewer than `sync_every`.

        For a training whose number of steps is no multiple of `sync_every`. All replicas call it after the same step.

        Returns:
            The outcome of the round; None if no step has been trained since the last one.

        Raises:
            As `step`.
        """
        return self._synchronizer.end_round()

    def finish(self) -> Outcome | None:
        """Call this after the last step: waits for a running exchange; the parameters are then the global ones.

        Returns:
            The outcome of the round that was still running; None if there was none.

        Raises:
            FencedError, StoppedError, RendezvousError, DivergedError
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
    def _own_state(self) -> StateDict:
        """What the subclass restores beside the trainer's state."""

    @abstractmethod
    def _load_own_state(self, state_dict: StateDict) -> None:
        """Restore what `_own_state` returned."""

    @abstractmethod
    def _pack(self, state: StateDict) -> bytes:
        """A state as bytes."""

    @abstractmethod
    def _unpack(self, body: bytes) -> StateDict:
        """The state that `_pack` made the bytes of."""

    def _keep(self, round_: int) -> Callable[[], None]:
        checkpoints = self._checkpoints
        if checkpoints is None or not checkpoints.is_due(round_):
            return lambda: None
        state = self._pack({**self.state_dict(), "round": round_})
        return lambda: checkpoints.save(round_, state)


def _listed(names: Mapping[str, object] | set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
