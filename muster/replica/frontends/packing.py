"""Named arrays and one flat buffer: one object and one checksum per round, however many tensors there are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from muster.contract.document import digest
from muster.replica.errors import ParametersError
from muster.replica.frontends.arrays import HeldArray, hold
from muster.replica.store.transport import OBJECT_BYTES_MAX
from muster.replica.wire.binary_format import Floats, object_bytes

# A float32 NumPy array, or one that NumPy can share by DLPack; or a mapping of names to such arrays, and, if it is a
# dict, to immutable ones (as JAX's).
Parameters = Any

WHOLE = slice(0, None)


@dataclass(frozen=True)
class Piece:
    """Elements `local` of the array `name`, flattened, which lie at `place` of a part of the flat buffer."""

    name: str
    local: slice
    place: slice


class Packing(ABC):
    """The trainer's own arrays, and their places in the flat float32 buffer. Read and written in place."""

    def __init__(self, shapes: Mapping[str, Sequence[int]], problems: Sequence[str] = (), averaged: int = 0) -> None:
        """Lay the arrays out in the order given.

        Args:
            problems: what is wrong with them, found before.
            averaged: so many elements at the end of the buffer are statistics, not parameters: they are averaged.

        Raises:
            ParametersError: with everything that is wrong with them.
        """
        self._shapes = {name: tuple(shape) for name, shape in shapes.items()}
        self.count = sum(prod(shape) for shape in self._shapes.values())
        self.optimized = self.count - averaged
        problems = list(problems)
        if not problems and self.count == 0:
            problems.append("there are no parameters")
        if object_bytes(self.count) > OBJECT_BYTES_MAX:
            problems.append(f"{self.count:,} elements are more than an object of {OBJECT_BYTES_MAX:,} bytes holds")
        if problems:
            raise ParametersError("The parameters cannot be trained together: " + "; ".join(problems) + ".")

    @property
    def layout(self) -> str:
        """Digest of names and shapes: replicas that disagree on it do not train the same model."""
        return digest([[name, list(shape)] for name, shape in self._shapes.items()])

    @abstractmethod
    def read(self, part: slice = WHOLE) -> Floats:
        """A flat copy of a part of the arrays."""

    @abstractmethod
    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        """Overwrite a part of the arrays."""

    def rounded(self, flat: Floats, part: slice = WHOLE) -> Floats:  # noqa: ARG002 - for types other than float32
        """`flat` as the arrays would hold it once written: itself where they are float32."""
        return flat

    def unpack(self, flat: Floats) -> dict[str, Floats]:
        """Views of `flat`, by name."""
        return {piece.name: flat[piece.place].reshape(self._shapes[piece.name]) for piece in self.pieces(WHOLE)}

    def pieces(self, part: slice) -> Iterator[Piece]:
        """What of which array lies in `part`."""
        begin, end, _ = part.indices(self.count)
        start = 0
        for name, shape in self._shapes.items():
            stop = start + prod(shape)
            first, last = max(start, begin), min(stop, end)
            if first < last or (start == stop and begin <= start < end):
                yield Piece(name, slice(first - start, last - start), slice(first - begin, last - begin))
            start = stop


class ArrayPacking(Packing):
    """NumPy arrays, and arrays of other libraries: see `hold`."""

    def __init__(self, parameters: Parameters) -> None:
        """Take hold of the arrays, in the order of their names (no order of insertion matters).

        Raises:
            ParametersError: with everything that is wrong with them.
        """
        named = parameters if isinstance(parameters, Mapping) else MappingProxyType({"parameters": parameters})
        self._arrays: dict[str, HeldArray] = {}
        problems = []
        for name in sorted(named):
            try:
                self._arrays[name] = hold(named, name)
            except ParametersError as error:
                problems.append(str(error))
        super().__init__({name: array.view().shape for name, array in self._arrays.items()}, problems)

    def read(self, part: slice = WHOLE) -> Floats:
        """A flat copy."""
        pieces = [self._arrays[piece.name].view().reshape(-1)[piece.local] for piece in self.pieces(part)]
        return np.concatenate(pieces)

    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        """Overwrite in place, or replace what is immutable."""
        for piece in self.pieces(part):
            self._arrays[piece.name].write(piece.local, flat[piece.place])
