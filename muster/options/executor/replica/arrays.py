"""The arrays of one all-reduce, of any library, as one flat buffer. PyTorch is recognised, not imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Any

import numpy as np

from muster.replica.replica_errors import ParametersError
from muster.replica.wire.binary_format import Floats

ALLOWED = "NumPy arrays and PyTorch tensors of a floating type, and lists, tuples and dicts of them"


class FlatArrays:
    """Every array in `values`: those of a list in its order, those of a dict in the order of their names."""

    def __init__(self, values: object) -> None:
        """Look for the arrays.

        Raises:
            ParametersError: lists everything that cannot be averaged.
        """
        self._arrays: list[Any] = []
        problems = []
        for name, array in _leaves("values", values):
            problem = _problem(array)
            if problem is None:
                self._arrays.append(array)
            else:
                problems.append(f"{name} {problem}")
        if not problems and not any(_size(array) for array in self._arrays):
            problems.append("values holds no element")
        if problems:
            message = f"These values cannot be averaged: {'; '.join(problems)}; allowed: {ALLOWED}."
            raise ParametersError(message)

    def read(self) -> Floats:
        """A flat copy, in float32."""
        return np.concatenate([_values(array) for array in self._arrays])

    def write(self, flat: Floats) -> None:
        """Overwrite the arrays in place, each in its own type and on its own device."""
        ends = list(accumulate(map(_size, self._arrays)))
        for array, part in zip(self._arrays, np.split(flat, ends[:-1]), strict=True):
            if isinstance(array, np.ndarray):
                array[...] = part.reshape(array.shape)
            else:
                held = array.detach()
                held.copy_(held.new_tensor(part).view(held.shape))


def _leaves(name: str, values: object) -> Iterator[tuple[str, object]]:
    if isinstance(values, Mapping):
        for key in sorted(values, key=str):
            yield from _leaves(f"{name}[{key!r}]", values[key])
    elif isinstance(values, list | tuple):
        for index, item in enumerate(values):
            yield from _leaves(f"{name}[{index}]", item)
    else:
        yield name, values


def _is_tensor(array: object) -> bool:
    return any((kind.__module__, kind.__name__) == ("torch", "Tensor") for kind in type(array).__mro__)


def _problem(array: Any) -> str | None:
    """Why an array cannot be averaged; None if it can."""
    if isinstance(array, np.ndarray):
        if not np.issubdtype(array.dtype, np.floating):
            return f"is {array.dtype}"
        return None if array.flags.writeable else "is read-only"
    if not _is_tensor(array):
        return f"is of type {type(array).__name__}"
    return None if array.is_floating_point() else f"is {array.dtype}"


def _size(array: Any) -> int:
    return int(array.size if isinstance(array, np.ndarray) else array.numel())


def _values(array: Any) -> Floats:
    if isinstance(array, np.ndarray):
        return array.astype(np.float32).reshape(-1)
    values: Floats = array.detach().float().cpu().reshape(-1).numpy()
    return values
