"""A trainer whose first attempt ends differently in every rank; a later one trains a round and succeeds."""

import os
import signal

import numpy as np

from muster.replica.context import Context
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rounds.claims import claim_rank

ENDINGS = ("fenced", "saved", "memory", "killed")


def train(context: Context) -> None:
    """Join, then end in the way that belongs to the rank."""
    outer = DiLoCo(context.rendezvous, np.zeros(3, np.float32))
    ending = ENDINGS[context.rank] if context.attempt == 1 else "round"
    if ending == "fenced":
        # A newer attempt takes the rank while this one trains.
        claim_rank(context.rendezvous.context.store, context.run, context.rank, context.attempt + 1)
    if ending == "saved":
        os.kill(os.getpid(), signal.SIGTERM)
        context.stop.wait()
        return
    if ending == "memory":
        message = "x" * 2_000
        raise MemoryError(message)
    if ending == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    outer.step()
