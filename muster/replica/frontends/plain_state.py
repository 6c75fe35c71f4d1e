"""A trainer's state as bytes, without pickle: nested dicts and lists of numbers, strings and arrays."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from muster.replica.errors import ParametersError

_ARRAY = "__array__"
_TREE = "tree"

Packed = bytes | memoryview
"""A state as bytes."""

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
    if isinstance(state, list | tuple):
        return sum(bytes_of(item) for item in state)
    return int(getattr(state, "nbytes", 8))


def pack_plain(tree: Mapping[str, object]) -> Packed:
    """Bytes of `tree`.

    Raises:
        ParametersError: it holds something other than dicts, lists, numbers, strings and arrays.
    """
    arrays: dict[str, NDArray[np.generic]] = {}

    def plain(value: object) -> object:
        if isinstance(value, Mapping):
            return {str(key): plain(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
            arrays[str(len(arrays))] = np.asarray(value)
            return {_ARRAY: len(arrays) - 1}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        found = type(value).__name__
        message = f"trainer_state has a value of type {found}; allowed: dicts, lists, numbers, strings and arrays."
        raise ParametersError(message)

    text = json.dumps(plain(tree)).encode()
    file = io.BytesIO()
    # Typed as if its keyword options could be among the names.
    np.savez(file, **{_TREE: np.frombuffer(text, np.uint8)}, **arrays)  # type: ignore[arg-type]
    # Not a second copy.
    return file.getbuffer()


def unpack_plain(body: Packed) -> StateDict:
    """The tree that `pack_plain` made the bytes of; tuples have become lists."""
    with np.load(io.BytesIO(body), allow_pickle=False) as file:

        def full(value: object) -> object:
            if isinstance(value, dict):
                return file[str(value[_ARRAY])] if set(value) == {_ARRAY} else {k: full(v) for k, v in value.items()}
            return [full(item) for item in value] if isinstance(value, list) else value

        tree = full(json.loads(file[_TREE].tobytes()))
    if not isinstance(tree, dict):
        message = f"The stored trainer state is of type {type(tree).__name__}; allowed: a dict."
        raise ParametersError(message)
    return tree


def is_finite(state: object) -> bool:
    """Whether no array of a nested state holds NaN or infinity. Single numbers may: the best loss before the first."""
    if isinstance(state, Mapping):
        return all(is_finite(item) for item in state.values())
    if isinstance(state, list | tuple):
        return all(is_finite(item) for item in state)
    if isinstance(state, np.generic) or not hasattr(state, "__array__"):
        return True
    array = np.asarray(state)
    return array.dtype.kind in "biuSUOMm" or bool(np.isfinite(array).all())
