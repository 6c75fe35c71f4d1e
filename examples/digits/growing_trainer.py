"""The same training for a run whose replicas come and go: `examples.digits.growing_trainer:train`.

No replica has a part of the data of its own: it trains the shards that are left, whoever trains with it.
"""

from __future__ import annotations

from examples.digits.dataset import Examples, load
from examples.digits.model import AdamW, Classifier
from muster import Algorithm, Context, DiLoCo, FinalModel


def train(
    context: Context,
    *,
    epochs: int = 200,
    shards: int = 60,
    inner_steps: int = 10,
    batch_size: int = 32,
    learning_rate: float = 1e-3,
    weight_decay: float = 1.0,
    hidden: int = 128,
    seed: int = 0,
    outer_learning_rate: float = 0.7,
    outer_momentum: float = 0.7,
    seconds_per_step: float = 0.0,
) -> None:
    """Train all examples once an epoch, and report the held-out accuracy of the global model each round.

    Args:
        context: given by Muster.
        epochs: how often the run trains each example, whichever replica does it.
        shards: into how many shards the examples are divided: some for each of the replicas that there may be.
        inner_steps: AdamW steps between two outer steps.
        seconds_per_step: the least duration of a step, to make the run easy to watch.
    """
    training, held_out = load()
    data = context.shards(shards, epochs=epochs, seed=seed)
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
    for images, labels in data.arrays(training.images, training.labels, batch_size=batch_size):
        loss, gradients = model.loss_and_gradients(Examples(images, labels))
        inner.step(gradients)
        context.stop.wait(seconds_per_step)
        if outer.step(samples=len(labels)) is not None:
            accuracy = model.accuracy(held_out)
            context.metrics.log(round=outer.round, epoch=data.epoch, loss=loss, accuracy=accuracy)
    outer.finish()
