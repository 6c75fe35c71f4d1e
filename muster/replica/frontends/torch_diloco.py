"""The front end for PyTorch: inner steps at home, rounds together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import ParametersError
from muster.replica.frontends.checkpoints import Checkpoints
from muster.replica.frontends.plain_state import Stateful
from muster.replica.frontends.tensor_packing import TensorPacking
from muster.replica.frontends.torch_state import pack_torch, random_state, set_random_state, unpack_torch
from muster.replica.rounds.exchange import Outcome
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.synchronizer import Synchronizer


class DiLoCo:
    """Keeps a model and the run's in step.

        outer = DiLoCo(model, inner_optimizer, context.rendezvous, sync_every=500)
        while outer.round < rounds and not context.stop.is_set():
            loss = train_one_step(model, batch)
            inner_optimizer.step()
            outer.step(samples=tokens)      # every 500th time: the model takes over the global parameters
        outer.finish()

    Trainable parameters are exchanged, of any floating type and wherever they lie (the global ones are float32, on the
    CPU); tied weights once; persistent floating buffers (as BatchNorm's statistics) are averaged. The inner optimizer
    stays the replica's own. A replica that starts while the run is going on begins at the run's round.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        rendezvous: Rendezvous,
        *,
        sync_every: int,
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
        """Join the run: overwrites the model's parameters and statistics with the run's.

        Args:
            sync_every, learning_rate, momentum, fragments, delay, alpha, eager, codec: see `Algorithm`.
            trainer_state: what else goes on where it stood when the replica comes back (data position, scheduler), by
                name.
            checkpoint_dir: where that is kept with the inner optimizer's state and the random numbers' (the context's).

        Raises:
            ParametersError: a model that cannot be trained, or another than the run's.
            AlgorithmError: settings that contradict themselves, or those of the run.
            FencedError, StoppedError, RendezvousError
        """
        algorithm = Algorithm(sync_every, learning_rate, momentum, fragments, delay, alpha, eager, codec)
        self._inner = inner_optimizer
        self._trainer_state = dict(trainer_state or {})
        self._checkpoints = None if checkpoint_dir is None else Checkpoints(checkpoint_dir, "trainer")
        packing = TensorPacking(model)
        # What counts or masks is not averaged: it comes back with the replica's own state.
        self._own_buffers = {name: buffer for name, buffer in model.named_buffers() if not buffer.is_floating_point()}
        self._synchronizer = Synchronizer(rendezvous, packing, algorithm, self._keep, checkpoint_dir)
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
        """After `inner_optimizer.step()`; every `sync_every` of them the parameters are exchanged.

        Args:
            samples: samples or tokens seen since the last step; their sum is the weight in the round's mean.

        Returns:
            How a round went, if one ended here.

        Raises:
            ValueError: samples is not a positive, finite number.
            FencedError, StoppedError, RendezvousError, DivergedError: the model keeps its local values.
        """
        return self._synchronizer.step(samples)

    def finish(self) -> Outcome | None:
        """After the last step: wait for what is under way; the model holds the global parameters then."""
        return self._synchronizer.finish()

    def state_dict(self) -> dict[str, Any]:
        """The replica's own state with the round that it belongs to; the global one lies in the rendezvous."""
        return {
            "round": self.round,
            "inner_optimizer": self._inner.state_dict(),
            "buffers": {name: buffer.clone() for name, buffer in self._own_buffers.items()},
            "random": random_state(),
            "trainer": {name: item.state_dict() for name, item in self._trainer_state.items()},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` gave.

        Raises:
            ParametersError: it belongs to a round that the run has not reached, or to another trainer.
        """
        if state_dict["round"] > self.round:
            message = f"This state belongs to round {state_dict['round']}, but the run is in round {self.round}."
            raise ParametersError(message)
        missing = self._trainer_state.keys() ^ state_dict["trainer"].keys()
        if missing:
            message = f"The state and this trainer differ in what they keep: {', '.join(sorted(missing))}."
            raise ParametersError(message)
        self._inner.load_state_dict(state_dict["inner_optimizer"])
        for name, value in state_dict["buffers"].items():
            self._own_buffers[name].copy_(value)
        for name, item in self._trainer_state.items():
            item.load_state_dict(state_dict["trainer"][name])
        set_random_state(state_dict["random"])

    def _keep(self, round_: int) -> Callable[[], None]:
        checkpoints = self._checkpoints
        if checkpoints is None:
            return lambda: None
        state = pack_torch({**self.state_dict(), "round": round_})
        return lambda: checkpoints.save(round_, state)

    def _resume(self) -> None:
        found = None if self._checkpoints is None else self._checkpoints.load(self.round)
        if found is not None:
            self.load_state_dict(unpack_torch(found[1]))


class LocalSGD(DiLoCo):
    """Plain averaging: every `sync_every` steps the replicas' parameters become their weighted average."""

    def __init__(
        self,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer,
        rendezvous: Rendezvous,
        *,
        sync_every: int,
        trainer_state: Mapping[str, Stateful] | None = None,
        checkpoint_dir: Path | None = None,
    ) -> None:
        """Join the run; see `DiLoCo`."""
        super().__init__(
            model,
            inner_optimizer,
            rendezvous,
            sync_every=sync_every,
            learning_rate=1.0,
            momentum=0.0,
            trainer_state=trainer_state,
            checkpoint_dir=checkpoint_dir,
        )
