"""The front end for PyTorch models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.front_end import DiLoCoFrontEnd, StatePart, check_rendezvous, check_type
from muster.replica.frontends.joined_optimizers import joined
from muster.replica.frontends.model_tensors import buffers_of
from muster.replica.frontends.resized_optimizer import ResizedOptimizer
from muster.replica.frontends.stored_tensors import StoredTensors
from muster.replica.frontends.tensor_packing import TensorPacking
from muster.replica.frontends.torch_link import connected
from muster.replica.frontends.torch_state import local_state, random_state, set_random_state, sharded_state
from muster.replica.model.final_model import NO_WISHES, FinalModel
from muster.replica.rendezvous import Rendezvous
from muster.replica.resizing.states import resized_objects
from muster.replica.states.plain_state import StateDict, Stateful


class DiLoCo(DiLoCoFrontEnd):
    """Trains a model together with the run's other replicas.

        outer = DiLoCo(context.rendezvous, model, inner_optimizer, Algorithm(sync_every=500))
        while outer.round < rounds and not context.stop.is_set():
            loss = train_one_step(model, batch)
            inner_optimizer.step()
            outer.step(samples=tokens)      # every 500th call exchanges and overwrites the model
        outer.finish()

    Exchanges trainable parameters of any floating type on any device (the global ones are float32, on the CPU), tied
    weights once; averages persistent floating buffers (such as BatchNorm's statistics). The inner optimizer stays the
    replica's own. A replica that joins a running run starts at the run's round.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        model: torch.nn.Module,
        inner_optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        algorithm: Algorithm,
        *,
        trainer_state: Mapping[str, Stateful] | None = None,
        checkpoint_dir: str | Path | None = None,
        final_model: FinalModel = NO_WISHES,
    ) -> None:
        """Join the run: overwrites the model's parameters and statistics with the run's.

        Args:
            rendezvous: the context's.
            model: the whole model, on its device and in its type.
            inner_optimizer: made of the model's parameters; or several, such as Muon for matrices and AdamW for the
                rest.
            algorithm: how the run trains.
            trainer_state: further objects to restore when the replica restarts (data position, scheduler), by name.
            checkpoint_dir: where to save them with the inner optimizer's state, the random numbers' and the residual
                of the codec (the context's); None: not saved.
            final_model: what lies beside the weights of the run's model, and how it is evaluated; see `FinalModel`.

        Raises:
            ParametersError: an argument that cannot be used, or another model than the run's.
            AlgorithmError: other settings than the run's.
            FencedError, StoppedError, RendezvousError
        """
        check_rendezvous(rendezvous)
        check_type("model", model, torch.nn.Module, "a torch.nn.Module")
        self._inner = joined(inner_optimizer)
        self._model = model
        self._is_first = rendezvous.context.group.is_first
        for_exchange, for_training = connected(rendezvous.context.group)
        rendezvous.connect(for_exchange)
        packing = TensorPacking(model, self._inner, for_training)
        super().__init__(
            rendezvous,
            packing,
            algorithm,
            trainer_state=trainer_state,
            checkpoint_dir=checkpoint_dir,
            final_model=final_model,
        )

    def _stored(self, final_model: FinalModel) -> StoredTensors:
        return StoredTensors(self._model, self._is_first, final_model.adapter)

    def _own_state(self) -> StateDict:
        return {
            "inner_optimizer": local_state(self._inner.state_dict()),
            "buffers": {name: buffer.clone() for name, buffer in self._own_buffers().items()},
            "random": random_state(),
        }

    def _load_own_state(self, state_dict: StateDict) -> None:
        self._inner.load_state_dict(sharded_state(state_dict["inner_optimizer"], self._inner))
        own = self._own_buffers()
        for name, value in state_dict["buffers"].items():
            own[name].copy_(value)
        set_random_state(state_dict["random"])

    def _resized(self, readers: Sequence[Callable[[], StateDict]], rank: int, size: int) -> StateDict:
        optimizer = ResizedOptimizer(self._inner)
        made: StateDict = {}
        trainers: list[StateDict] = []
        for number, read in enumerate(readers):
            state = read()
            optimizer.add(state.pop("inner_optimizer"), number, len(readers))
            trainers.append(state.pop("trainer"))
            if number == rank % len(readers):
                made = state
        if rank >= len(readers):
            made["random"] = random_state()  # two processes must not draw the same numbers
        trainer = resized_objects(self._trainer_state, trainers, rank, size)
        return {**made, "inner_optimizer": optimizer.result(), "trainer": trainer}

    def _parts(self) -> dict[str, StatePart]:
        inner = StatePart(lambda: local_state(self._inner.state_dict()), self._load_inner, ("inner_optimizer",))
        return {"inner_optimizer": inner, **super()._parts()}

    def _load_inner(self, state: StateDict) -> None:
        """Load the state of each parameter alone: learning rates are the trainer's, and may have changed since."""
        groups = self._inner.state_dict()["param_groups"]
        self._inner.load_state_dict(sharded_state({**state, "param_groups": groups}, self._inner))

    def _own_buffers(self) -> dict[str, torch.Tensor]:
        """Integer and boolean buffers (counters, masks): not averaged, but restored with the replica's state."""
        return {name: buffer for name, buffer in buffers_of(self._model).items() if not buffer.is_floating_point()}


class LocalSGD(DiLoCo):
    """Plain averaging: every `sync_every` steps the parameters become the weighted average of all replicas'."""

    def __init__(
        self,
        rendezvous: Rendezvous,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        sync_every: int,
        *,
        trainer_state: Mapping[str, Stateful] | None = None,
        checkpoint_dir: str | Path | None = None,
        final_model: FinalModel = NO_WISHES,
    ) -> None:
        """Join the run; see `DiLoCo`."""
        super().__init__(
            rendezvous,
            model,
            optimizer,
            Algorithm(sync_every, learning_rate=1.0, momentum=0.0),
            trainer_state=trainer_state,
            checkpoint_dir=checkpoint_dir,
            final_model=final_model,
        )
