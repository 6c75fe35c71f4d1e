"""The trainer of replicas that come and go: `examples.digits.seats_trainer:train`."""

from __future__ import annotations

import time

import numpy as np

from examples.digits.dataset import Examples, load
from examples.digits.model import AdamW, Classifier
from muster import Algorithm, Context, DiLoCo, FinalModel

SHARDS = 24


def train(
    context: Context,
    *,
    rounds: int = 30,
    inner_steps: int = 15,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    weight_decay: float = 1.0,
    hidden: int = 128,
    seed: int = 0,
    outer_learning_rate: float = 0.7,
    outer_momentum: float = 0.7,
    seconds_per_round: float = 0.0,
) -> None:
    """Train with DiLoCo on the shards that the rounds leave for this replica; see `trainer.train` for the arguments.

    Whoever joins takes shards that nobody has trained in this epoch; those of a lost replica go to the others.
    """
    training, held_out = load()
    model = Classifier(hidden, seed)
    inner = AdamW(model.parameters, learning_rate, weight_decay)
    outer = DiLoCo(
        context.rendezvous,
        model.parameters,
        Algorithm(sync_every=inner_steps, learning_rate=outer_learning_rate, momentum=outer_momentum),
        trainer_state={"inner": inner},
        checkpoint_dir=context.checkpoint_dir,
        final_model=FinalModel(evaluate=lambda: {"accuracy": model.accuracy(held_out)}),
    )
    context.expect(rounds=rounds)
    shards = context.shards(SHARDS, seed=seed)
    losses: list[float] = []
    for images, labels in shards.arrays(training.images, training.labels, batch_size=batch_size):
        started = time.monotonic()
        loss, gradients = model.loss_and_gradients(Examples(images, labels))
        inner.step(gradients)
        losses.append(loss)
        context.stop.wait(max(0.0, seconds_per_round / inner_steps - (time.monotonic() - started)))
        if outer.step(samples=len(labels)) is not None:
            context.metrics.log(round=outer.round, loss=float(np.mean(losses)), accuracy=model.accuracy(held_out))
            losses.clear()
        # Where its shards are used up, a replica ends its round before this step.
        if outer.round >= rounds:
            break
    outer.finish()
