"""A trainer that is killed at any inner step, and says after each how far it is."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster import Algorithm, Context, DiLoCo

STEPS = 50  # of a phase


class Momentum:
    """An inner optimizer as large as the parameters, and the position in the data."""

    def __init__(self, count: int) -> None:
        self.position, self.velocity = 0, np.zeros(count, np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Both."""
        return {"position": self.position, "velocity": self.velocity}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Both."""
        self.position, self.velocity = state_dict["position"], state_dict["velocity"]

    def move(self, parameters: NDArray[np.float32]) -> None:
        """One inner step."""
        self.velocity *= np.float32(0.9)
        self.velocity += np.float32(0.1) * (parameters - np.float32(np.sin(self.position)))
        parameters -= np.float32(0.01) * self.velocity
        self.position += 1


def train(context: Context, *, count: int, steps: int, step_seconds: float) -> None:
    """Train `count` parameters for `steps` inner steps, none of which is shorter than `step_seconds`."""
    parameters = np.linspace(-1, 1, count, dtype=np.float32)
    optimizer = Momentum(count)
    outer = DiLoCo(
        context.rendezvous,
        parameters,
        Algorithm(sync_every=STEPS),
        trainer_state={"optimizer": optimizer},
        checkpoint_dir=context.checkpoint_dir,
    )
    print(f"begins_at={outer.round * STEPS + outer.steps}", flush=True)
    while optimizer.position < steps:
        over = time.monotonic() + step_seconds
        optimizer.move(parameters)
        while time.monotonic() < over:
            time.sleep(max(0.0, over - time.monotonic()))
        before = time.monotonic()
        outer.step()
        print(f"done={optimizer.position} took={time.monotonic() - before:.6f}", flush=True)
    outer.finish()
    print(f"digest={hashlib.sha256(parameters.tobytes()).hexdigest()[:16]}", flush=True)
