"""A nested state in one buffer: its arrays one after another, and the tree with places where they were.

The training loop waits while the arrays are copied, once, into memory that the next state uses again. Checksums and
writing follow beside the training loop, from the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from muster.replica.tiers.state_file import HEADER_BYTES, Bytes, UnusableStateError

Room = NDArray[np.uint8]
Floats = NDArray[np.float32]
Tree = dict[str, Any]
Packed = bytes | memoryview

_ALIGNMENT = 64
_PLACE = "__place__"


class Kind(NamedTuple):
    """What an array in the buffer is: its element type by name, its shape and its bytes."""

    name: str
    shape: tuple[int, ...]
    size: int


class Arrays(Protocol):
    """How a library's arrays lie in the buffer, as the bytes of their elements in C order."""

    def kind(self, value: object) -> Kind | None:
        """What `value` is; None if it stays in the tree."""

    def copy(self, value: Any, room: Room) -> None:
        """Copy an array into `room`, at the latest until `settle`."""

    def settle(self) -> None:
        """Wait for copies that are running."""

    def restored(self, kind: Kind, room: Room) -> object:
        """An array of the bytes in `room`, which it may use as its own memory."""

    def memory(self, size: int) -> Room:
        """New memory of undefined content."""


@dataclass(frozen=True)
class Filling:
    """An array of float32 that is made in its room, by `fill`."""

    count: int
    fill: Callable[[Floats], object]


@dataclass(frozen=True)
class Coding:
    """How a front end's state becomes bytes: `pack` and `unpack` for trees without large arrays, and its arrays."""

    pack: Callable[[Tree], Packed]
    unpack: Callable[[Packed], Tree]
    arrays: Arrays


_FILLED = "filled"


@dataclass
class _Outline:
    """The arrays that were taken out of a tree, in order."""

    arrays: Arrays
    found: list[tuple[object, Kind]] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)

    def of(self, value: object) -> object:
        """`value` with places instead of arrays; `value` itself where it holds none."""
        kind = self._kind(value)
        if kind is not None:
            # An array that is in the tree twice is stored once, and is one array again.
            place = self._places.setdefault(id(value), len(self.found))
            if place == len(self.found):
                self.found.append((value, kind))
            return {_PLACE: place}
        if isinstance(value, Mapping):
            items = {key: self.of(item) for key, item in value.items()}
            return value if all(items[key] is item for key, item in value.items()) else items
        if isinstance(value, list | tuple):
            made: list[Any] = [self.of(item) for item in value]
            if all(new is old for new, old in zip(made, value, strict=True)):
                return value
            return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
        return value

    def _kind(self, value: object) -> Kind | None:
        if isinstance(value, Filling):
            return Kind(_FILLED, (value.count,), 4 * value.count)
        return self.arrays.kind(value)


@dataclass(frozen=True)
class Layout:
    """A state that is about to be copied: the bytes of its tree, and where its arrays go behind the header."""

    tree: Packed
    arrays: Sequence[tuple[object, Kind]]
    offsets: Sequence[int]
    size: int

    @classmethod
    def of(cls, state: Tree, coding: Coding) -> Layout:
        """The layout of `state`."""
        outline = _Outline(coding.arrays)
        tree = outline.of(state)
        offsets, end = [], 0
        for _, kind in outline.found:
            offsets.append(end)
            end += _aligned(kind.size)
        places = [[offset, kind.name, *kind.shape] for offset, (_, kind) in zip(offsets, outline.found, strict=True)]
        packed = coding.pack({"tree": tree, "places": places})
        start = _aligned(HEADER_BYTES + len(packed))
        return cls(packed, outline.found, [start + offset for offset in offsets], start + end)

    @property
    def filled(self) -> list[slice]:
        """Where the arrays lie that are made in their rooms."""
        rooms = zip(self.arrays, self.offsets, strict=True)
        return [slice(offset, offset + kind.size) for (value, kind), offset in rooms if isinstance(value, Filling)]

    def copy_to(self, memory: Room, arrays: Arrays) -> None:
        """Copy tree and arrays into `memory`; the room for the header stays as it is."""
        start = HEADER_BYTES + len(self.tree)
        memory[HEADER_BYTES:start] = np.frombuffer(self.tree, np.uint8)
        for (value, kind), offset in zip(self.arrays, self.offsets, strict=True):
            # What lies between has a checksum, too.
            memory[start:offset] = 0
            room = memory[offset : offset + kind.size]
            if isinstance(value, Filling):
                value.fill(room.view(np.float32))
            else:
                arrays.copy(value, room)
            start = offset + kind.size
        memory[start : self.size] = 0
        arrays.settle()


def state_in(body: Bytes, tree_bytes: int, coding: Coding) -> Tree:
    """The state that was copied into a buffer, whose memory it may use.

    Raises:
        UnusableStateError: it is no such state.
    """
    memory = np.frombuffer(body, np.uint8)
    try:
        packed = coding.unpack(memory[HEADER_BYTES : HEADER_BYTES + tree_bytes].tobytes())
        start = _aligned(HEADER_BYTES + tree_bytes)
        arrays = [_restored(memory[start + place[0] :], place, coding.arrays) for place in packed["places"]]
        tree = _filled_in(packed["tree"], arrays)
    except Exception as error:
        # Whatever a library says of bytes that no state of this version has.
        message = f"it cannot be unpacked: {type(error).__name__}: {error}"
        raise UnusableStateError(message) from None
    if not isinstance(tree, dict):
        message = f"it holds a {type(tree).__name__}, not a state"
        raise UnusableStateError(message)
    return tree


def _restored(memory: Room, place: Sequence[Any], arrays: Arrays) -> object:
    name, shape = str(place[1]), tuple(int(length) for length in place[2:])
    if name == _FILLED:
        return memory[: 4 * shape[0]].view(np.float32).copy()
    return arrays.restored(Kind(name, shape, 0), memory)


def _filled_in(value: object, arrays: Sequence[object]) -> object:
    if isinstance(value, dict):
        if set(value) == {_PLACE}:
            return arrays[value[_PLACE]]
        items = {key: _filled_in(item, arrays) for key, item in value.items()}
        # As it is where it holds no array: it may be of a type of its own.
        return value if all(items[key] is item for key, item in value.items()) else items
    if isinstance(value, list | tuple):
        made: list[Any] = [_filled_in(item, arrays) for item in value]
        if all(new is old for new, old in zip(made, value, strict=True)):
            return value
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class PlainArrays:
    """NumPy's arrays, and those of libraries that NumPy can read; they are restored as NumPy's."""

    def kind(self, value: object) -> Kind | None:
        """See `Arrays`."""
        if isinstance(value, np.generic) or not hasattr(value, "__array__"):
            return None
        array = np.asarray(value)
        return Kind(array.dtype.str, array.shape, array.nbytes) if array.dtype.kind in "biufc" else None

    def copy(self, value: Any, room: Room) -> None:
        """See `Arrays`."""
        array = np.asarray(value)
        np.copyto(room.view(array.dtype).reshape(array.shape), array)

    def settle(self) -> None:
        """See `Arrays`."""

    def restored(self, kind: Kind, room: Room) -> object:
        """See `Arrays`."""
        dtype = np.dtype(kind.name)
        count = int(np.prod(kind.shape, dtype=np.int64))
        return room[: count * dtype.itemsize].view(dtype).reshape(kind.shape).copy()

    def memory(self, size: int) -> Room:
        """See `Arrays`."""
        return np.empty(size, np.uint8)
