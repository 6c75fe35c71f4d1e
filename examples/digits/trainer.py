"""The trainer of every replica: `examples.digits.trainer:train`."""

from __future__ import annotations

import time

import numpy as np

from examples.digits.dataset import load, shard
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
    """Train on this replica's shard with DiLoCo, and report the held-out accuracy of the global model each round.

    Args:
        context: given by Muster.
        rounds: outer steps of the whole run.
        inner_steps: AdamW steps between two outer steps.
        outer_momentum: DiLoCo's 0.9 averages over about ten rounds, too many for a run of twenty or thirty.
        seconds_per_round: the least duration of a round, to make the demo easy to watch.
    """
    training, held_out = load()
    examples = shard(training, context.rank, context.world_size)
    model = Classifier(hidden, seed)
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
    while outer.round < rounds and not context.stop.is_set():
        started = time.monotonic()
        # Seeded by rank and round: a restarted replica draws the next round's batches.
        rng = np.random.default_rng((seed, context.rank, outer.round))
        losses = []
        for _ in range(inner_steps):
            loss, gradients = model.loss_and_gradients(examples[rng.integers(len(examples), size=batch_size)])
            inner.step(gradients)
            losses.append(loss)
        context.stop.wait(max(0.0, seconds_per_round - (time.monotonic() - started)))
        outer.step(samples=inner_steps * batch_size)
        context.metrics.log(
            round=outer.round,
            loss=float(np.mean(losses)),
            accuracy=model.accuracy(held_out),
        )
    outer.finish()
