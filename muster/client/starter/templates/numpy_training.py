"""What every replica runs: `muster launch run.yaml` calls `train`. Replace the model and the data with your own."""

from pathlib import Path

import numpy as np

from muster import Algorithm, Context, DiLoCo


def train(context: Context, *, rounds: int = 20, steps_per_round: int = 50, learning_rate: float = 0.1) -> None:
    """Fit a linear model. All replicas have the same weights after every round."""
    inputs, targets = load(context.input_dir / "train", context.rank, context.world_size)
    weights = np.zeros(inputs.shape[1], np.float32)
    outer = DiLoCo(context.rendezvous, {"weights": weights}, Algorithm(sync_every=steps_per_round))
    context.expect(rounds=rounds)
    random = np.random.default_rng((context.rank, outer.round))
    while outer.round < rounds and not context.stop.is_set():
        batch = random.integers(len(inputs), size=32)
        error = inputs[batch] @ weights - targets[batch]
        weights -= learning_rate * (inputs[batch].T @ error) / len(batch)
        if outer.step(samples=len(batch)) is not None:  # this step has ended a round
            context.metrics.log(round=outer.round, loss=float(np.mean((inputs @ weights - targets) ** 2)))
    outer.finish()


def load(folder: Path, rank: int, world_size: int) -> tuple[np.ndarray, np.ndarray]:
    """This replica's part of the data: CSV files, the last column is the target; without a channel, made-up numbers."""
    if folder.is_dir():
        rows = np.concatenate([np.loadtxt(path, np.float32, delimiter=",", ndmin=2) for path in folder.glob("*.csv")])
    else:
        inputs = np.random.default_rng(0).normal(size=(1024, 8)).astype(np.float32)
        rows = np.column_stack([inputs, inputs @ np.arange(8, dtype=np.float32)])
    own = rows[rank::world_size]
    return own[:, :-1], own[:, -1]
