"""Named arrays and one flat buffer: one object and one checksum per round, however many tensors there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.contract.document import digest
from muster.replica.blocks import OBJECT_BYTES_MAX
from muster.replica.codec import Floats, object_bytes
from muster.replica.errors import ParametersError

Parameters = Floats | Mapping[str, Floats]


class Packing:
    """The trainer's own arrays, and their places in the flat buffer (by name: no order of insertion matters)."""

    def __init__(self, parameters: Parameters) -> None:
        """Take hold of the arrays, which are read and written in place from here on.

        Raises:
            ParametersError: with everything that is wrong with them.
        """
        named = {"parameters": parameters} if isinstance(parameters, np.ndarray) else dict(parameters)
        problems = [problem for name, array in named.items() for problem in _problems(name, array)]
        self._arrays = dict(sorted(named.items()))
        self.count = sum(array.size for array in self._arrays.values()) if not problems else 0
        if not problems and self.count == 0:
            problems.append("there are no parameters")
        if object_bytes(2 * self.count) > OBJECT_BYTES_MAX:
            problems.append(f"{self.count:,} elements with their momentum exceed one PUT of {OBJECT_BYTES_MAX:,} bytes")
        if problems:
            raise ParametersError("The parameters cannot be trained together: " + "; ".join(problems) + ".")

    @property
    def layout(self) -> str:
        """Digest of names and shapes: replicas that disagree on it do not train the same model."""
        return digest([[name, list(array.shape)] for name, array in self._arrays.items()])

    def read(self) -> Floats:
        """A flat copy of the arrays."""
        return np.concatenate([array.reshape(-1) for array in self._arrays.values()])

    def write(self, flat: Floats) -> None:
        """Overwrite the arrays."""
        for name, values in self.unpack(flat).items():
            self._arrays[name][...] = values

    def unpack(self, flat: Floats) -> dict[str, Floats]:
        """Views of `flat`, by name."""
        views, start = {}, 0
        for name, array in self._arrays.items():
            views[name] = flat[start : start + array.size].reshape(array.shape)
            start += array.size
        return views


def _problems(name: str, array: NDArray[Any]) -> list[str]:
    if not isinstance(array, np.ndarray):
        return [f"{name} is a {type(array).__name__}, not a NumPy array"]
    if array.dtype != np.float32:
        return [f"{name} is {array.dtype}, not float32"]
    return [] if array.flags.writeable else [f"{name} is read-only"]
