"""The same training for replicas whose number of instances may change: `examples.digits.elastic_trainer:train`.

The first process of a replica trains as in `trainer`. Those of further instances help it with the gradients.
"""

from __future__ import annotations

import time

import numpy as np

from examples.digits.dataset import load, shard
from examples.digits.helpers import Helpers, help_first
from examples.digits.model import AdamW, Classifier
from muster import Algorithm, Context, DiLoCo, FinalModel


def train(
    context: Context,
    *,
    rounds: int = 20,
    inner_steps: int = 60,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    weight_decay: float = 1.0,
    hidden: int = 128,
    seed: int = 0,
    outer_learning_rate: float = 0.7,
    outer_momentum: float = 0.7,
    seconds_per_round: float = 0.0,
) -> None:
    """Train on this replica's shard with all its processes; the arguments are those of `trainer.train`."""
    training, held_out = load()
    examples = shard(training, context.rank, context.world_size)
    model = Classifier(hidden, seed)
    if not context.group.is_first:
        help_first(model, examples)
        return
    inner = AdamW(model.parameters, learning_rate, weight_decay)
    outer = DiLoCo(
        context.rendezvous,
        model.parameters,
        Algorithm(learning_rate=outer_learning_rate, momentum=outer_momentum),
        trainer_state={"inner": inner},
        checkpoint_dir=context.checkpoint_dir,
        final_model=FinalModel(evaluate=lambda: {"accuracy": model.accuracy(held_out)}),
    )
    context.expect(rounds=rounds)
    context.metrics.log(round=outer.round, accuracy=model.accuracy(held_out))
    helpers = Helpers(context.group.size - 1)
    while outer.round < rounds and not context.stop.is_set():
        started = time.monotonic()
        # Seeded by rank and round: a restarted replica draws the next round's batches.
        rng = np.random.default_rng((seed, context.rank, outer.round))
        losses = []
        for _ in range(inner_steps):
            loss, gradients = helpers.loss_and_gradients(model, examples, rng.integers(len(examples), size=batch_size))
            inner.step(gradients)
            losses.append(loss)
        context.stop.wait(max(0.0, seconds_per_round - (time.monotonic() - started)))
        outer.step(samples=inner_steps * batch_size)
        context.metrics.log(
            round=outer.round,
            loss=float(np.mean(losses)),
            accuracy=model.accuracy(held_out),
            instances=float(context.group.size),
        )
    helpers.close()
    outer.finish()
