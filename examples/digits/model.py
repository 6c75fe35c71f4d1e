"""A perceptron with one hidden layer, and AdamW, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples.digits.dataset import Examples

Arrays = dict[str, NDArray[np.float32]]

PIXELS, CLASSES = 64, 10


class Classifier:
    """64 pixels -> hidden units (ReLU) -> 10 classes. An optimizer updates `parameters` in place."""

    def __init__(self, hidden: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.parameters: Arrays = {
            "hidden.weight": _he(rng, PIXELS, hidden),
            "hidden.bias": np.zeros(hidden, np.float32),
            "output.weight": _he(rng, hidden, CLASSES),
            "output.bias": np.zeros(CLASSES, np.float32),
        }

    def loss_and_gradients(self, batch: Examples) -> tuple[float, Arrays]:
        """Mean cross-entropy over the batch, and its gradient by parameter."""
        p = self.parameters
        hidden = np.maximum(batch.images @ p["hidden.weight"] + p["hidden.bias"], 0)
        scores = hidden @ p["output.weight"] + p["output.bias"]
        scores -= scores.max(axis=1, keepdims=True)
        probabilities = np.exp(scores)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
        rows = np.arange(len(batch))
        loss = -float(np.log(probabilities[rows, batch.labels] + 1e-12).mean())
        error = probabilities
        error[rows, batch.labels] -= 1
        error /= len(batch)
        back = (error @ p["output.weight"].T) * (hidden > 0)
        return loss, {
            "hidden.weight": batch.images.T @ back,
            "hidden.bias": back.sum(axis=0),
            "output.weight": hidden.T @ error,
            "output.bias": error.sum(axis=0),
        }

    def accuracy(self, examples: Examples) -> float:
        """The share of examples that are classified correctly."""
        p = self.parameters
        hidden = np.maximum(examples.images @ p["hidden.weight"] + p["hidden.bias"], 0)
        guesses = (hidden @ p["output.weight"] + p["output.bias"]).argmax(axis=1)
        return float((guesses == examples.labels).mean())


class AdamW:
    """Adam with decoupled weight decay (arXiv 1711.05101)."""

    def __init__(self, parameters: Arrays, learning_rate: float, weight_decay: float) -> None:
        self._parameters = parameters
        self._rate, self._decay = learning_rate, weight_decay
        self._first = {name: np.zeros_like(array) for name, array in parameters.items()}
        self._second = {name: np.zeros_like(array) for name, array in parameters.items()}
        self._steps = 0

    def state_dict(self) -> dict[str, Any]:
        """The running averages and the number of steps."""
        return {"first": self._first, "second": self._second, "steps": self._steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from that state."""
        self._first, self._second, self._steps = (state_dict[name] for name in ("first", "second", "steps"))

    def step(self, gradients: Arrays) -> None:
        """Update the parameters in place."""
        self._steps += 1
        for name, gradient in gradients.items():
            array, first, second = self._parameters[name], self._first[name], self._second[name]
            first += np.float32(0.1) * (gradient - first)
            second += np.float32(0.001) * (gradient * gradient - second)
            direction = (first / (1 - 0.9**self._steps)) / (np.sqrt(second / (1 - 0.999**self._steps)) + 1e-8)
            array -= (self._rate * (direction + self._decay * array)).astype(np.float32)


def _he(rng: np.random.Generator, inputs: int, outputs: int) -> NDArray[np.float32]:
    weights: NDArray[np.float32] = rng.standard_normal((inputs, outputs), dtype=np.float32)
    return weights * np.float32(np.sqrt(2 / inputs))
