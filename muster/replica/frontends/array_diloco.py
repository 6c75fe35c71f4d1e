"""The front end for plain arrays: NumPy's, JAX's, any library's that supports DLPack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_packing import ArrayPacking, Parameters, StoredArrays
from muster.replica.frontends.front_end import DiLoCoFrontEnd, check_first_process, check_rendezvous
from muster.replica.model.final_model import NO_WISHES, FinalModel
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import ParametersError
from muster.replica.states.plain_state import StateDict, Stateful

_DILOCO = Algorithm()


class DiLoCo(DiLoCoFrontEnd):
    """Trains float32 arrays together with the run's other replicas.

        outer = DiLoCo(context.rendezvous, model.parameters, Algorithm(sync_every=500))
        while outer.round < rounds and not context.stop.is_set():
            train_one_step(model, batch)            # any inner optimizer, on the arrays themselves
            outer.step(samples=len(batch))          # every 500th call exchanges and overwrites the arrays
        outer.finish()

    Immutable arrays, such as JAX's, must be in a dict; a round replaces them there:

        outer = DiLoCo(context.rendezvous, parameters, Algorithm(sync_every=500))
        while ...:
            parameters.update(train_one_step(parameters, batch))
            outer.step(samples=len(batch))

    A replica that joins a running run starts at the run's round; after the run's end it only replays.
    """

    _one_saves = True

    def __init__(
        self,
        rendezvous: Rendezvous,
        parameters: Parameters,
        algorithm: Algorithm = _DILOCO,
        *,
        trainer_state: Mapping[str, Stateful] | None = None,
        checkpoint_dir: str | Path | None = None,
        final_model: FinalModel = NO_WISHES,
    ) -> None:
        """Join the run: overwrites `parameters` with the run's.

        Args:
            rendezvous: the context's.
            parameters: a float32 array, or a dict of names to float32 arrays.
            algorithm: how the run trains; by default every step is a round.
            trainer_state: objects to restore when the replica restarts (inner optimizer, data position, random
                numbers), by name. Their states come back equal, or are refused when they are first saved.
            checkpoint_dir: where to save them, and the residual of the codec (the context's); None: not saved.
            final_model: what lies beside the weights of the run's model, and how it is evaluated; see `FinalModel`.

        Raises:
            ParametersError: an argument that cannot be used, or another model than the run's.
            AlgorithmError: other settings than the run's.
            FencedError, StoppedError, RendezvousError
        """
        check_rendezvous(rendezvous)
        check_first_process(rendezvous, "DiLoCo for arrays")
        self._arrays = ArrayPacking(parameters)
        super().__init__(
            rendezvous,
            self._arrays,
            algorithm,
            trainer_state=trainer_state,
            checkpoint_dir=checkpoint_dir,
            final_model=final_model,
        )

    def _stored(self, final_model: FinalModel) -> StoredArrays:
        if final_model.adapter is not None:
            message = "FinalModel.adapter is for PyTorch models; allowed for arrays: None."
            raise ParametersError(message)
        return self._arrays.stored()

    def _own_state(self) -> StateDict:
        return {}

    def _load_own_state(self, state_dict: StateDict) -> None:
        """Arrays have no state beside the trainer's."""
