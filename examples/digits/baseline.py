"""The baseline: the same model trained by one process on all data, with as many samples as all replicas together."""

from __future__ import annotations

import numpy as np

from examples.digits.dataset import load
from examples.digits.model import AdamW, Classifier


def baseline_accuracy(
    *,
    replicas: int,
    rounds: int,
    inner_steps: int = 60,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    weight_decay: float = 1.0,
    hidden: int = 128,
    seed: int = 0,
) -> float:
    """Held-out accuracy after `replicas * rounds * inner_steps` steps of AdamW. Arguments as the trainer's."""
    training, held_out = load()
    model = Classifier(hidden, seed)
    optimizer = AdamW(model.parameters, learning_rate, weight_decay)
    rng = np.random.default_rng((seed, replicas))
    for _ in range(replicas * rounds * inner_steps):
        _, gradients = model.loss_and_gradients(training[rng.integers(len(training), size=batch_size)])
        optimizer.step(gradients)
    return model.accuracy(held_out)
