"""The trainer's own arrays, of any library: seen as NumPy arrays, and overwritten or replaced."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from muster.replica.errors import ParametersError
from muster.replica.wire.binary_format import Floats


class HeldArray(Protocol):
    """One float32 array of a trainer's."""

    def view(self) -> NDArray[Any]:
        """Its values now; not to be written."""

    def write(self, local: slice, values: Floats) -> None:
        """Give the elements `local`, counted flat, other values."""


def hold(named: Mapping[str, Any], name: str) -> HeldArray:
    """Take hold of an array.

    Raises:
        ParametersError: it cannot be trained; says why, without a full stop.
    """
    array = named[name]
    shared = _shared(array)
    if shared is not None and shared.dtype != np.float32:
        message = f"{name} is {shared.dtype}, not float32"
    elif shared is not None and shared.flags.writeable:
        return SharedArray(shared)
    elif isinstance(array, np.ndarray):
        message = f"{name} is read-only"
    elif not hasattr(array, "__array_namespace__"):
        message = f"{name} is a {type(array).__name__}, neither a NumPy array nor one that DLPack can share with NumPy"
    elif not isinstance(named, MutableMapping):
        message = f"{name} is read-only: put it into a dict, where another one can take its place"
    else:
        return ReplacedArray(named, name)
    raise ParametersError(message)


class SharedArray:
    """A NumPy array, or one whose memory NumPy shares: overwritten in place."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def view(self) -> NDArray[Any]:
        """The array itself."""
        return self._array

    def write(self, local: slice, values: Floats) -> None:
        """Overwrite in place."""
        # An index into `flat` and not a reshape, which would be a copy where the array is not contiguous.
        self._array.flat[local] = values


class ReplacedArray:
    """An immutable array that its owner keeps in a dict, as a trainer with JAX does: another takes its place there.

    Its library follows the array API standard (https://data-apis.org/array-api).
    """

    def __init__(self, owner: MutableMapping[str, Any], name: str) -> None:
        self._owner = owner
        self._name = name
        self._shape = np.shape(owner[name])
        self.view()

    def view(self) -> NDArray[Any]:
        """The values of what lies in the dict now, from whatever device.

        Raises:
            ParametersError: that is no float32 array of the same shape.
        """
        array = self._owner[self._name]
        shared = _shared(array)
        values = np.asarray(array) if shared is None else shared
        if values.shape != self._shape or values.dtype != np.float32:
            message = f"{self._name} is {values.dtype} of shape {values.shape}, not float32 of shape {self._shape}"
            raise ParametersError(message)
        return values

    def write(self, local: slice, values: Floats) -> None:
        """Put a new array of the same library, on the same device, into the dict."""
        # A copy that nobody else has: the new array may go on using its memory.
        flat = self.view().reshape(-1).copy()
        flat[local] = values
        old = self._owner[self._name]
        self._owner[self._name] = old.__array_namespace__().asarray(flat.reshape(self._shape), device=old.device)


def _shared(array: Any) -> NDArray[Any] | None:
    """The array as NumPy sees its memory; None where it cannot."""
    if isinstance(array, np.ndarray):
        return array
    if not hasattr(array, "__dlpack__"):
        return None
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None
