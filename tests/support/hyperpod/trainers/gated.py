"""A trainer that is delivered with its run: one rank stays in a round until a file is there."""

from pathlib import Path

import numpy as np

from muster import Context, DiLoCo, FinalModel


def train(context: Context, *, rounds: int, gate: str, gated_rank: int, gated_round: int) -> None:
    """Train for `rounds`. The rank waits for the file `gate` after it has committed `gated_round`."""
    weights = np.zeros(1_000, np.float32)
    outer = DiLoCo(
        context.rendezvous, {"weights": weights}, checkpoint_dir=context.checkpoint_dir, final_model=FinalModel()
    )
    while outer.round < rounds and not context.stop.is_set():
        if (context.rank, outer.round) == (gated_rank, gated_round):
            while not (Path(gate).exists() or context.stop.wait(0.05)):
                pass
        weights += context.rank + 1
        outer.step(samples=1)
    outer.finish()
