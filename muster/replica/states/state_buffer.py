"""A nested state in one buffer: its arrays one after another, and the tree with places where they were.

The training loop waits while the arrays are copied, once, into memory that the next state uses again. Checksums and
writing follow beside the training loop, from the same memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from muster.replica.free_memory import pages
from muster.replica.replica_errors import ParametersError
from muster.replica.states.state_tree import (
    FILLED,
    Arrays,
    Filling,
    Kind,
    Outline,
    Room,
    Tree,
    dtype_name,
    dtype_named,
    tree_in,
)

Bytes = bytes | bytearray | memoryview
Packed = bytes | memoryview
"""A state as bytes."""

_ALIGNMENT = 64
_TREE_BYTES = struct.Struct("<Q")


class UnusableStateError(Exception):
    """A stored state cannot be used; its text says why."""


@dataclass(frozen=True)
class Layout:
    """A state that is about to be copied: the bytes of its tree, and where its arrays go behind the header.

    Attributes:
        head: bytes of the header, which are left free.
    """

    tree: bytes
    arrays: Sequence[tuple[object, Kind]]
    offsets: Sequence[int]
    size: int
    head: int

    @classmethod
    def of(cls, state: Tree, arrays: Arrays, head: int) -> Layout:
        """The layout of `state`.

        Raises:
            ParametersError: it holds a value that would not come back equal; says which one.
        """
        outline = Outline(arrays)
        text = outline.text_of(state)
        offsets, end = [], 0
        for _, kind in outline.found:
            offsets.append(end)
            end += _aligned(kind.size)
        places = [[offset, kind.name, *kind.shape] for offset, (_, kind) in zip(offsets, outline.found, strict=True)]
        tree = f"{json.dumps(places)}\n{text}".encode()
        start = _aligned(head + len(tree))
        return cls(tree, outline.found, [start + offset for offset in offsets], start + end, head)

    @property
    def filled(self) -> list[slice]:
        """Where the arrays lie that are made in their rooms."""
        rooms = zip(self.arrays, self.offsets, strict=True)
        return [slice(offset, offset + kind.size) for (value, kind), offset in rooms if isinstance(value, Filling)]

    def copy_to(self, memory: Room, arrays: Arrays) -> None:
        """Copy tree and arrays into `memory`; the room for the header stays as it is."""
        start = self.head + len(self.tree)
        memory[self.head : start] = np.frombuffer(self.tree, np.uint8)
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


def state_in(body: Bytes, tree_bytes: int, arrays: Arrays, head: int) -> Tree:
    """The state that was copied into a buffer, whose memory it may use.

    Raises:
        UnusableStateError: it is no such state.
    """
    memory = np.frombuffer(body, np.uint8)
    try:
        lines, _, text = memory[head : head + tree_bytes].tobytes().partition(b"\n")
        start = _aligned(head + tree_bytes)
        found = [_restored(memory[start + place[0] :], place, arrays) for place in json.loads(lines)]
        tree = tree_in(text, found.__getitem__, lambda number: arrays.unpacked(bytes(memoryview(found[number]))))
    except Exception as error:
        # Whatever a library says of bytes that no state of this version has.
        message = f"it cannot be unpacked: {type(error).__name__}: {error}"
        raise UnusableStateError(message) from None
    if not isinstance(tree, dict):
        message = f"it holds a {type(tree).__name__}, not a state"
        raise UnusableStateError(message)
    return tree


def packed_state(state: Tree, arrays: Arrays) -> Packed:
    """A whole state in new memory, without a header; raises as `Layout.of`."""
    layout = Layout.of(state, arrays, _TREE_BYTES.size)
    memory = pages(layout.size)
    _TREE_BYTES.pack_into(memory.data, 0, len(layout.tree))
    layout.copy_to(memory, arrays)
    return memory.data


def unpacked_state(body: Packed, arrays: Arrays) -> Tree:
    """The state that `packed_state` made the bytes of.

    Raises:
        ParametersError: it cannot be read, by this version or with what is imported.
    """
    try:
        return state_in(body, _TREE_BYTES.unpack_from(body)[0], arrays, _TREE_BYTES.size)
    except (UnusableStateError, struct.error) as error:
        message = f"The stored state of the trainer cannot be loaded: {error}."
        raise ParametersError(message) from None


def _restored(memory: Room, place: Sequence[Any], arrays: Arrays) -> Any:
    name, shape = str(place[1]), tuple(int(length) for length in place[2:])
    if name == FILLED:
        return memory[: 4 * shape[0]].view(np.float32).copy()
    return arrays.restored(Kind(name, shape, 0), memory)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


class PlainArrays:
    """NumPy's arrays, and those of libraries that share theirs (DLPack, as JAX); they are restored as NumPy's."""

    def kind(self, value: object) -> Kind | None:
        """See `Arrays`. A subclass, such as a masked array, may hold more than its elements."""
        if isinstance(value, np.generic) or not hasattr(value, "__array__"):
            return None
        if type(value) not in {np.ndarray, np.memmap} and not hasattr(value, "__dlpack__"):
            return None
        if isinstance(value, np.ndarray) and type(value) not in {np.ndarray, np.memmap}:
            return None
        array = np.asarray(value)
        name = dtype_name(array.dtype)
        return None if name is None else Kind(name, array.shape, array.nbytes)

    def copy(self, value: Any, room: Room) -> None:
        """See `Arrays`."""
        array = np.asarray(value)
        np.copyto(room.view(array.dtype).reshape(array.shape), array)

    def settle(self) -> None:
        """See `Arrays`."""

    def restored(self, kind: Kind, room: Room) -> object:
        """See `Arrays`."""
        dtype = dtype_named(kind.name)
        count = int(np.prod(kind.shape, dtype=np.int64))
        return room[: count * dtype.itemsize].view(dtype).reshape(kind.shape).copy()

    def memory(self, size: int) -> Room:
        """See `Arrays`."""
        return np.empty(size, np.uint8)

    def packed(self, value: object) -> bytes | None:  # noqa: ARG002 - NumPy has no other objects
        """See `Arrays`."""
        return None

    def unpacked(self, body: bytes) -> object:
        """See `Arrays`."""
        message = f"it holds {len(body)} bytes of another library"
        raise UnusableStateError(message)
