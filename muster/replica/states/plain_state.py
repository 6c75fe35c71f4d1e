"""What a trainer gives to be saved: nested states, and the objects that have them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

StateDict = dict[str, Any]
"""A nested state by name, as PyTorch's `state_dict` returns it; its values are what the trainer keeps."""


@runtime_checkable
class Stateful(Protocol):
    """An object whose state can be saved: PyTorch's optimizers, schedulers and stateful data loaders are such."""

    def state_dict(self) -> StateDict:
        """Everything that is needed to continue later."""

    def load_state_dict(self, state_dict: StateDict) -> object:
        """Continue from that state."""


def bytes_of(state: object) -> int:
    """Roughly how many bytes a nested state takes: its arrays and tensors."""
    if isinstance(state, Mapping):
        return sum(bytes_of(item) for item in state.values())
    if isinstance(state, list | tuple | deque):
        return sum(bytes_of(item) for item in state)
    return int(getattr(state, "nbytes", 8))


def is_finite(state: object) -> bool:
    """Whether no array of a nested state holds NaN or infinity. Single numbers may: the best loss before the first."""
    if isinstance(state, Mapping):
        return all(is_finite(item) for item in state.values())
    if isinstance(state, list | tuple | deque):
        return all(is_finite(item) for item in state)
    if isinstance(state, np.generic) or not hasattr(state, "__array__"):
        return True
    if hasattr(state, "isfinite"):
        # PyTorch's, on any device and of types that NumPy has not.
        return bool(state.isfinite().all())
    array = np.asarray(state)
    return array.dtype.kind in "biuSUOMm" or bool(np.isfinite(array).all())
