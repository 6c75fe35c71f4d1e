"""DiLoCo for NumPy: inner steps at home, one outer step together."""

from __future__ import annotations

import numpy as np

from muster.replica.outer import Nesterov, Outer
from muster.replica.packing import Packing, Parameters
from muster.replica.rendezvous import Outcome, Rendezvous


class DiLoCo:
    """Keeps a trainer's parameters and the run's in step.

        outer = DiLoCo(context.rendezvous, model.parameters)
        while outer.round < rounds and not context.stop.is_set():
            samples = train_a_while(model)          # any inner optimizer, on the arrays themselves
            outer.step(samples)                     # the arrays now hold the global parameters

    A replica that starts while the run is going on begins at the run's round; after the run's end it only replays.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        parameters: Parameters,
        *,
        learning_rate: float = 0.7,
        momentum: float = 0.9,
    ) -> None:
        """Join the run: overwrites `parameters` (a float32 array or a mapping of names to them) with the run's.

        Raises:
            ParametersError: arrays that cannot be trained, or of another model than the run's.
            FencedError, StoppedError, RendezvousError
        """
        self._rendezvous = rendezvous
        self._packing = Packing(parameters)
        self._training = rendezvous.join(self._packing, Outer(Nesterov(learning_rate, momentum)))
        self._packing.write(self._training.state.parameters)

    @property
    def round(self) -> int:
        """Rounds applied to the parameters so far."""
        return self._training.state.round

    def step(self, samples: float = 1.0) -> Outcome:
        """End a round: give the pseudo-gradient (global minus local), take the new global parameters.

        Args:
            samples: samples or tokens seen since the last step, the weight in the mean (the same for all by default).

        Raises:
            ValueError: samples is not a positive, finite number.
            FencedError, StoppedError, RendezvousError, DivergedError: the arrays keep their local values.
        """
        if not (np.isfinite(samples) and samples > 0):
            message = f"samples must be a positive number, not {samples!r}"
            raise ValueError(message)
        state = self._training.state
        gradient = state.parameters - self._packing.read()
        outcome = self._rendezvous.advance(self._training, gradient, float(samples))
        self._packing.write(state.parameters)
        return outcome
