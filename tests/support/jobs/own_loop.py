"""A trainer as they were written for the former executor: it knows nothing of Muster, and brings its own loop."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

# Such modules read the environment when they are imported.
RANK, WORLD_SIZE = int(os.environ["REPLICA_RANK"]), int(os.environ["WORLD_SIZE"])
COUNT = 200


def shift(rank: int, round_: int) -> np.ndarray[Any, Any]:
    """What the local training of a rank changes."""
    return np.random.default_rng((rank, round_)).standard_normal(COUNT).astype(np.float32)


def train(allreduce: Any, rounds: int, pause: float = 0.0, model_dir: str | None = None) -> int:
    """`rounds` outer steps with momentum; the parameters go to the folder of the model."""
    print(f"[trainer] rank {RANK} of {WORLD_SIZE} at {os.environ['RENDEZVOUS_URI']}", flush=True)
    weights, momentum = np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32)
    for round_ in range(1, rounds + 1):
        time.sleep(pause)
        gradient = shift(RANK, round_)
        allreduce.allreduce(gradient)
        momentum = np.float32(0.9) * momentum + gradient
        weights -= np.float32(0.7) * momentum
        print(f"[trainer] round {round_} digest {weights.tobytes().hex()[:16]}", flush=True)
    opt_ml = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    np.save(Path(model_dir or opt_ml / "model") / "weights.npy", weights)
    return rounds


def expected(rounds: int, world_size: int) -> bytes:
    """The parameters of an undisturbed run, in plain NumPy."""
    weights, momentum = np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32)
    for round_ in range(1, rounds + 1):
        first, *others = (shift(rank, round_) for rank in range(world_size))
        momentum = np.float32(0.9) * momentum + sum(others, first) * np.float32(1 / world_size)
        weights -= np.float32(0.7) * momentum
    return weights.tobytes()


def fail(rounds: int) -> None:
    """A trainer that takes its place from the environment alone, and fails."""
    message = f"round {rounds} of rank {RANK}"
    raise ValueError(message)


def leave(code: int) -> None:
    """A program that ends itself."""
    raise SystemExit(code)
