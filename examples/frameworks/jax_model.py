"""A model in JAX: `examples.frameworks.jax_model:train`.

JAX's arrays are immutable. DiLoCo gets a flat dict of them, and puts the global ones into it after each round.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from muster import Algorithm, Context, DiLoCo

CLASSES, WIDTH = 16, 32


class Momentum:
    """The state of the inner optimizer, which a rerun restores."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self.values = {name: jnp.zeros_like(value) for name, value in parameters.items()}

    def state_dict(self) -> dict[str, Any]:
        """The moving averages of the gradients by name."""
        return {name: np.asarray(value) for name, value in self.values.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from them."""
        self.values = {name: jnp.asarray(value) for name, value in state_dict.items()}


def loss_of(parameters: dict[str, Any], inputs: Any, targets: Any) -> Any:
    """Mean cross-entropy of a perceptron that learns to add 3, modulo CLASSES."""
    hidden = jax.nn.relu(jax.nn.one_hot(inputs, CLASSES) @ parameters["first"])
    scores = jax.nn.log_softmax(hidden @ parameters["second"])
    return -jnp.take_along_axis(scores, targets[:, None], axis=1).mean()


@jax.jit
def inner_step(parameters: dict[str, Any], momentum: dict[str, Any], inputs: Any) -> Any:
    """One step of SGD with momentum: the loss before it, the parameters and the momentum after it."""
    loss, gradients = jax.value_and_grad(loss_of)(parameters, inputs, (inputs + 3) % CLASSES)
    momentum = jax.tree.map(lambda mean, gradient: 0.9 * mean + gradient, momentum, gradients)
    parameters = jax.tree.map(lambda value, mean: value - 0.1 * mean, parameters, momentum)
    return loss, parameters, momentum


def train(context: Context, *, rounds: int = 8, sync_every: int = 10) -> None:
    """Train on this replica's part of the data.

    Args:
        context: given by Muster.
        rounds: exchanges with the other replicas.
        sync_every: inner steps between two exchanges.
    """
    first, second = jax.random.split(jax.random.key(0))
    parameters = {
        "first": jax.random.normal(first, (CLASSES, WIDTH)) * CLASSES**-0.5,
        "second": jax.random.normal(second, (WIDTH, CLASSES)) * WIDTH**-0.5,
    }
    momentum = Momentum(parameters)
    outer = DiLoCo(
        context.rendezvous,
        parameters,
        Algorithm(sync_every=sync_every, momentum=0.5),
        trainer_state={"momentum": momentum},
        checkpoint_dir=context.checkpoint_dir,
    )
    step = outer.round * sync_every + outer.steps
    while outer.round < rounds and not context.stop.is_set():
        inputs = jax.random.randint(jax.random.key(context.world_size * step + context.rank), (8,), 0, CLASSES)
        loss, updated, momentum.values = inner_step(parameters, momentum.values, inputs)
        parameters.update(updated)
        step += 1
        if outer.step(samples=len(inputs)) is not None:
            context.metrics.log(loss=float(loss))
    outer.finish()
