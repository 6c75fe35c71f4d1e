"""The trainer's own arrays, of any library: read as NumPy arrays, and overwritten or replaced."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from muster.replica.model.safetensors_layout import Tensor
from muster.replica.model.weights_writer import Raw
from muster.replica.parts.local_shard import LocalShard
from muster.replica.parts.packing import WHOLE, Packing
from muster.replica.replica_errors import ParametersError
from muster.replica.wire.binary_format import Floats


class Array(Protocol):
    """An array of any library that supports DLPack: NumPy's, JAX's, PyTorch's."""

    def __dlpack__(self, *, stream: None = None) -> object:
        """The array's memory, for other libraries."""

    def __dlpack_device__(self) -> object:
        """Where that memory is."""


Parameters = Array | Mapping[str, Array]
"""A float32 array whose memory NumPy can write (NumPy's, PyTorch's on the CPU), or a mapping of names to such arrays.
If the mapping is a dict, it may hold immutable arrays (JAX's) as well."""

_ALLOWED = "a float32 array, or a dict of names to float32 arrays"


class _Immutable(Protocol):
    """An array of a library that follows the array API standard (https://data-apis.org/array-api)."""

    device: object

    def __array_namespace__(self) -> ModuleType:
        """Its library."""


class HeldArray(Protocol):
    """One float32 array of the trainer's."""

    def view(self) -> Floats:
        """Its current values; read only."""

    def write(self, local: slice, values: Floats) -> None:
        """Overwrite the elements `local`, counted flat."""


class ArrayPacking(Packing):
    """NumPy arrays, and arrays of other libraries: see `Parameters`."""

    def __init__(self, parameters: Parameters) -> None:
        """Take the arrays in the order of their names; the order of insertion does not matter.

        Raises:
            ParametersError: lists everything that is wrong with them.
        """
        if isinstance(parameters, list | tuple | set):
            message = f"parameters is of type {type(parameters).__name__}; allowed: {_ALLOWED}."
            raise ParametersError(message)
        named: Mapping[str, Array] = (
            parameters if isinstance(parameters, Mapping) else MappingProxyType({"parameters": parameters})
        )
        self._arrays: dict[str, HeldArray] = {}
        problems = []
        for name in sorted(named):
            try:
                self._arrays[name] = hold(named, name)
            except ParametersError as error:
                problems.append(str(error))
        super().__init__({name: array.view().shape for name, array in self._arrays.items()}, problems)

    def stored(self) -> StoredArrays:
        """The arrays as they are now, as they are stored at the end of a run."""
        return StoredArrays(self._arrays)

    def read(self, part: slice = WHOLE, room: Floats | None = None) -> Floats:
        """A flat copy."""
        pieces = [self._arrays[piece.name].view().reshape(-1)[piece.local] for piece in self.pieces(part)]
        return np.concatenate(pieces, out=room)

    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        """Overwrite in place, or replace immutable arrays."""
        for piece in self.pieces(part):
            self._arrays[piece.name].write(piece.local, flat[piece.place])


def hold(named: Mapping[str, Array], name: str) -> HeldArray:
    """Access to the array `name`.

    Raises:
        ParametersError: it cannot be trained; says why, without a full stop.
    """
    array = named[name]
    shared = _shared(array)
    if shared is not None and shared.dtype != np.float32:
        message = f"{name} is {shared.dtype}, not float32"
    elif shared is not None and shared.flags.writeable:
        return SharedArray(cast(Floats, shared))
    elif isinstance(array, np.ndarray):
        message = f"{name} is read-only"
    elif not hasattr(array, "__array_namespace__"):
        message = (
            f"{name} is of type {type(array).__name__}, neither a NumPy array nor one that DLPack can share with NumPy"
        )
    elif not isinstance(named, MutableMapping):
        message = f"{name} is read-only: put it into a dict, in which it can be replaced"
    else:
        return ReplacedArray(named, name)
    raise ParametersError(message)


class SharedArray:
    """A NumPy array, or one whose memory NumPy shares: overwritten in place."""

    def __init__(self, array: Floats) -> None:
        self._array = array

    def view(self) -> Floats:
        """The array itself."""
        return self._array

    def write(self, local: slice, values: Floats) -> None:
        """Overwrite in place."""
        if self._array.flags.c_contiguous:
            self._array.reshape(-1)[local] = values
        else:
            # A reshape would be a copy. `flat` writes element by element, many times as slowly.
            self._array.flat[local] = values


class ReplacedArray:
    """An immutable array in the trainer's dict, as with JAX: a new array replaces it there."""

    def __init__(self, owner: MutableMapping[str, Array], name: str) -> None:
        self._owner = owner
        self._name = name
        self._shape = np.shape(cast(NDArray[np.generic], owner[name]))
        self.view()

    def view(self) -> Floats:
        """The current values of the array in the dict, from any device.

        Raises:
            ParametersError: it is not a float32 array of the same shape.
        """
        array = self._owner[self._name]
        shared = _shared(array)
        values = np.asarray(array) if shared is None else shared
        if values.shape != self._shape or values.dtype != np.float32:
            message = f"{self._name} is {values.dtype} of shape {values.shape}, not float32 of shape {self._shape}"
            raise ParametersError(message)
        return cast(Floats, values)

    def write(self, local: slice, values: Floats) -> None:
        """Put a new array of the same library, on the same device, into the dict."""
        # A fresh copy: the new array may keep its memory.
        flat = self.view().reshape(-1).copy()
        flat[local] = values
        old = cast(_Immutable, self._owner[self._name])
        self._owner[self._name] = old.__array_namespace__().asarray(flat.reshape(self._shape), device=old.device)


def _shared(array: object) -> NDArray[np.generic] | None:
    """The array as NumPy sees its memory; None if it cannot."""
    if isinstance(array, np.ndarray):
        return array
    if not hasattr(array, "__dlpack__"):
        return None
    try:
        return np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError):
        return None


class StoredArrays:
    """The arrays as they are now, as they are stored at the end of a run."""

    made_for = "np"

    def __init__(self, arrays: Mapping[str, HeldArray]) -> None:
        self._arrays = [array.view() for array in arrays.values()]
        self.tensors = [Tensor(name, "F32", array.view().shape) for name, array in arrays.items()]

    def shards(self) -> Sequence[LocalShard]:
        """See `TensorSource`: this process holds all."""
        return [LocalShard.whole(array.shape) for array in self._arrays]

    def read(self, number: int, local: slice) -> Raw:
        """See `TensorSource`."""
        # Little-endian whatever the machine: the format's order.
        return np.ascontiguousarray(self._arrays[number].reshape(-1)[local], "<f4").view(np.uint8)
