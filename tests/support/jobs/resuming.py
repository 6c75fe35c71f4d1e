"""A trainer that logs every round, and whose first run ends with an error after `fail_after` rounds."""

from pathlib import Path

import numpy as np

from muster.replica.context import Context
from muster.replica.frontends.array_diloco import DiLoCo
from tests.support.jobs import gated

EACH_ENDS_ALONE = {"on_replica_failure": "continue", "min_replicas": 1, "rendezvous": {"grace_seconds": 300.0}}
"""For a spec of two replicas that both fail, so that neither is stopped because the other failed first."""


def train(context: Context, *, rounds: int, fail_after: int, gate: str | None = None) -> None:
    """One weight, to which every rank adds its own number in every round; none before the gate is open.

    {run} in the gate's name is filled in.
    """
    if gate is not None:
        gated.wait(Path(gate.format(run=context.run)))
    weights = np.zeros(3, np.float32)
    outer = DiLoCo(context.rendezvous, {"weights": weights})
    first = outer.round + 1
    while outer.round < rounds:
        weights -= context.rank + 1
        outer.step()
        context.metrics.log(first=float(first))
        if context.run.count("-x") == 0 and outer.round >= fail_after:
            message = f"the data of round {outer.round + 1} is broken"
            raise ValueError(message)
