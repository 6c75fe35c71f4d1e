"""What the replicas train: gradients that depend on rank and round alone, so that every success has the same bytes."""

import numpy as np

from muster.replica.context import Context
from muster.replica.frontends.array_diloco import DiLoCo
from tests.support.peers import gradient_of

_COUNT = 300


def train(context: Context, *, rounds: int, pause_seconds: float) -> None:
    """Train `rounds` rounds, each after a pause in which a fault may strike."""
    parameters = np.zeros(_COUNT, np.float32)
    outer = DiLoCo(context.rendezvous, {"weights": parameters})
    while outer.round < rounds and not context.stop.wait(pause_seconds):
        parameters -= gradient_of(context.rank, outer.round + 1, _COUNT)
        outer.step(context.rank + 1)
