"""The front end for plain arrays: NumPy's, JAX's, any that know DLPack. Inner steps at home, rounds together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.checkpoints import Checkpoints
from muster.replica.frontends.packing import ArrayPacking, Parameters
from muster.replica.frontends.plain_state import Stateful, pack_plain, unpack_plain
from muster.replica.rounds.exchange import Outcome
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.synchronizer import Synchronizer


class DiLoCo:
    """Keeps a trainer's parameters and the run's in step.

        outer = DiLoCo(context.rendezvous, model.parameters, sync_every=500)
        while outer.round < rounds and not context.stop.is_set():
            train_one_step(model, batch)            # any inner optimizer, on the arrays themselves
            outer.step(samples=len(batch))          # every 500th time: the arrays take over the global parameters
        outer.finish()

    Immutable arrays, as JAX's, live in a dict; after a round others have taken their places in it:

        outer = DiLoCo(context.rendezvous, parameters, sync_every=500)
        while ...:
            parameters.update(train_one_step(parameters, batch))
            outer.step(samples=len(batch))

    A replica that starts while the run is going on begins at the run's round; after the run's end it only replays.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        parameters: Parameters,
        *,
        sync_every: int = 1,
        learning_rate: float = 0.7,
        momentum: float = 0.9,
        fragments: int = 1,
        delay: int = 0,
        alpha: float = 0.0,
        eager: bool = False,
        codec: str = "fp32",
        trainer_state: Mapping[str, Stateful] | None = None,
        checkpoint_dir: Path | None = None,
    ) -> None:
        """Join the run: overwrites `parameters` (a float32 array or a dict of names to them) with the run's.

        Args:
            sync_every, learning_rate, momentum, fragments, delay, alpha, eager, codec: see `Algorithm`.
            trainer_state: what goes on from the round it belongs to when the replica comes back (inner optimizer, data
                position, random numbers), by name; needs a `checkpoint_dir` (the context's).

        Raises:
            ParametersError: arrays that cannot be trained, or of another model than the run's.
            AlgorithmError: settings that contradict themselves, or those of the run.
            FencedError, StoppedError, RendezvousError
        """
        algorithm = Algorithm(sync_every, learning_rate, momentum, fragments, delay, alpha, eager, codec)
        self._trainer_state = dict(trainer_state or {})
        self._checkpoints = None if checkpoint_dir is None else Checkpoints(checkpoint_dir, "trainer")
        self._synchronizer = Synchronizer(rendezvous, ArrayPacking(parameters), algorithm, self._keep, checkpoint_dir)
        self._resume()

    @property
    def round(self) -> int:
        """The last round that this replica has given to, or has applied."""
        return self._synchronizer.round

    @property
    def utilisation(self) -> float:
        """Compute / wall of the last round: 1 less the share of the time that the loop was blocked."""
        return self._synchronizer.stopwatch.utilisation

    @property
    def blocked_seconds(self) -> float:
        """For how long the last round blocked the loop."""
        return self._synchronizer.stopwatch.blocked_seconds

    def step(self, samples: float = 1.0) -> Outcome | None:
        """After an inner step; every `sync_every` of them the parameters are exchanged.

        Args:
            samples: samples or tokens seen since the last step; their sum is the weight in the round's mean.

        Returns:
            How a round went, if one ended here.

        Raises:
            ValueError: samples is not a positive, finite number.
            FencedError, StoppedError, RendezvousError, DivergedError: the arrays keep their local values.
        """
        return self._synchronizer.step(samples)

    def finish(self) -> Outcome | None:
        """After the last step: wait for what is under way; the arrays hold the global parameters then."""
        return self._synchronizer.finish()

    def _keep(self, round_: int) -> Callable[[], None]:
        checkpoints = self._checkpoints
        if checkpoints is None:
            return lambda: None
        state = pack_plain({name: item.state_dict() for name, item in self._trainer_state.items()})
        return lambda: checkpoints.save(round_, state)

    def _resume(self) -> None:
        found = None if self._checkpoints is None else self._checkpoints.load(self.round)
        if found is not None:
            states = unpack_plain(found[1])
            for name, item in self._trainer_state.items():
                item.load_state_dict(states[name])
