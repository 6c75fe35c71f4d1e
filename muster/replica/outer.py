"""The outer optimizer: what all replicas do, identically, with a round's mean pseudo-gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.replica.codec import Floats


@dataclass
class GlobalState:
    """What every replica holds after `round` rounds, bit for bit: flat float32 arrays of the same length."""

    round: int
    parameters: Floats
    momentum: Floats


@dataclass(frozen=True)
class Nesterov:
    """SGD with Nesterov momentum as in DiLoCo (arXiv 2311.08105): m = μm + g, θ = θ - η(g + μm).

    Element by element in float32, one operation at a time: the same bits on any machine.
    """

    learning_rate: float = 0.7
    momentum: float = 0.9

    def step(self, state: GlobalState, gradient: Floats) -> None:
        """Advance `state` by one round, in place."""
        mu, eta = np.float32(self.momentum), np.float32(self.learning_rate)
        state.momentum *= mu
        state.momentum += gradient
        update = state.momentum * mu
        update += gradient
        update *= eta
        state.parameters -= update
        state.round += 1
