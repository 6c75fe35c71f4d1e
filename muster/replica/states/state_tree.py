"""A nested state as text, beside its arrays: what comes back is equal to what was given, or nothing is written.

| value | in the text |
|---|---|
| None, booleans, numbers, strings; lists, and dicts whose keys are strings | JSON |
| what `_LEAVES` lists, NumPy's scalars | `{"!": [kind, ...]}` |
| tuples, sets, deques, other dicts, those of `collections` | `{"!": [kind, ...]}`, with what they hold |
| enum members, named tuples | their class by name; it must be imported where they are read: nothing is executed |
| arrays | `{"!": ["array", number]}` |
| other objects of the library of the arrays (PyTorch) | as an array of the bytes that the library makes of it |
"""

from __future__ import annotations

import base64
import json
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from muster.replica.replica_errors import ParametersError

Room = NDArray[np.uint8]
Floats = NDArray[np.float32]
Tree = dict[str, Any]
Keys = tuple[Any, ...]
"""The keys under which a value lies in a tree."""

_TAG = "!"
_DEPTH_MAX = 100
_INT_BITS_MAX = 4096  # Python refuses to write much longer ones as decimal digits
_ALLOWED = (
    "numbers, strings, bytes, dates, paths, enum members, arrays and tensors; lists, tuples, named tuples, sets, "
    "deques and dicts of these"
)


class Kind(NamedTuple):
    """What an array in the buffer is: its element type by name, its shape and its bytes."""

    name: str
    shape: tuple[int, ...]
    size: int


class Arrays(Protocol):
    """How a library's arrays lie in the buffer, as the bytes of their elements in C order."""

    def kind(self, value: object) -> Kind | None:
        """What `value` is; None if it is no such array."""

    def copy(self, value: Any, room: Room) -> None:
        """Copy an array into `room`, at the latest until `settle`."""

    def settle(self) -> None:
        """Wait for copies that are running."""

    def restored(self, kind: Kind, room: Room) -> object:
        """An array of the bytes in `room`, which it may use as its own memory."""

    def memory(self, size: int) -> Room:
        """New memory of undefined content."""

    def packed(self, value: object) -> bytes | None:
        """The bytes of another object of the library; None if it is none, or is not the same when they are read."""

    def unpacked(self, body: bytes) -> object:
        """The object that `packed` made the bytes of."""


@dataclass(frozen=True)
class Filling:
    """An array of float32 that is made in its room, by `fill`."""

    count: int
    fill: Callable[[Floats], object]


FILLED = "filled"


class _Leaf(NamedTuple):
    type: type
    write: Callable[[Any], object]
    read: Callable[[Any], object]


_LEAVES = {
    "int": _Leaf(int, hex, lambda text: int(text, 16)),
    "complex": _Leaf(complex, lambda value: [value.real, value.imag], lambda parts: complex(*parts)),
    "bytes": _Leaf(bytes, lambda value: base64.b64encode(value).decode(), base64.b64decode),
    "bytearray": _Leaf(
        bytearray, lambda value: base64.b64encode(value).decode(), lambda text: bytearray(base64.b64decode(text))
    ),
    "range": _Leaf(range, lambda value: [value.start, value.stop, value.step], lambda parts: range(*parts)),
    "datetime": _Leaf(datetime, datetime.isoformat, datetime.fromisoformat),
    "date": _Leaf(date, date.isoformat, date.fromisoformat),
    "time": _Leaf(time, time.isoformat, time.fromisoformat),
    "timedelta": _Leaf(
        timedelta, lambda value: [value.days, value.seconds, value.microseconds], lambda parts: timedelta(*parts)
    ),
    "Decimal": _Leaf(Decimal, str, Decimal),
    "Path": _Leaf(type(Path()), str, Path),
    "PurePosixPath": _Leaf(PurePosixPath, str, PurePosixPath),
}
_JSON = {type(None), bool, float, str}
_LEAF_NAMES = {leaf.type: name for name, leaf in _LEAVES.items()}
_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": lambda items: deque(items[1:], items[0]),
}
_MAPPINGS: dict[str, type] = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter, "defaultdict": defaultdict}
_FACTORIES: dict[str, type] = {kind.__name__: kind for kind in (bool, int, float, str, list, dict, set, tuple)}


@dataclass
class Outline:
    """The arrays that were taken out of a tree, in order."""

    arrays: Arrays
    found: list[tuple[object, Kind]] = field(default_factory=list)
    _places: dict[int, int] = field(default_factory=dict)

    def text_of(self, tree: Tree) -> str:
        """The text of `tree`, with places instead of arrays.

        Raises:
            ParametersError: a value would not come back equal; says which one.
        """
        text = json.dumps(self._plain(tree, ()), separators=(",", ":"))
        self._compare(tree, tree_in(text, _Place, _Place), ())
        return text

    def _plain(self, value: Any, keys: Keys) -> object:
        kind = type(value)
        if kind in _JSON or (kind is int and value.bit_length() <= _INT_BITS_MAX):
            return value
        if len(keys) > _DEPTH_MAX:
            raise _refused(keys[:3], value, f"lies more than {_DEPTH_MAX} levels deep")
        if kind is list:
            return self._items(value, keys)
        if kind is dict and _TAG not in value and all(type(key) is str for key in value):
            return {key: self._plain(item, (*keys, key)) for key, item in value.items()}
        if isinstance(value, Filling):
            return {_TAG: ["array", self._place(value, Kind(FILLED, (value.count,), 4 * value.count))]}
        if (found := self.arrays.kind(value)) is not None:
            return {_TAG: ["array", self._place(value, found)]}
        tagged = self._tagged(value, keys)
        if tagged is None:
            if (body := self.arrays.packed(value)) is None:
                raise _refused(keys, value, "cannot be saved")
            room = np.frombuffer(body, np.uint8)
            self._places[id(value)] = place = self._place(room, Kind(room.dtype.str, room.shape, room.nbytes))
            tagged = ["packed", place]
        return {_TAG: tagged}

    def _tagged(self, value: Any, keys: Keys) -> list[Any] | None:
        """Kind and content of a value that JSON has not; None if it is of no kind that is known here."""
        kind = type(value)
        if kind in _LEAF_NAMES:
            return [_LEAF_NAMES[kind], _LEAVES[_LEAF_NAMES[kind]].write(value)]
        if isinstance(value, np.generic):
            name = dtype_name(value.dtype)
            return None if name is None else ["scalar", name, base64.b64encode(value.tobytes()).decode()]
        if isinstance(value, Enum) and value.name in kind.__members__ and _is_found(kind):
            return ["enum", kind.__module__, kind.__qualname__, value.name]
        if kind in _MAPPINGS.values():
            return self._mapping(value, keys)
        return self._sequence(value, keys)

    def _sequence(self, value: Any, keys: Keys) -> list[Any] | None:
        kind = type(value)
        if isinstance(value, tuple) and hasattr(value, "_fields") and _is_found(kind):
            return ["named", kind.__module__, kind.__qualname__, self._items(value, keys)]
        if kind is deque:
            return ["deque", [value.maxlen, *self._items(value, keys)]]
        return [kind.__name__, self._items(value, keys)] if kind in {tuple, set, frozenset} else None

    def _mapping(self, value: Any, keys: Keys) -> list[Any]:
        pairs = [[self._plain(key, (*keys, key)), self._plain(item, (*keys, key))] for key, item in value.items()]
        if type(value) is defaultdict:
            return ["defaultdict", pairs, getattr(value.default_factory, "__name__", None)]
        # PyTorch keeps the versions of modules in its attributes.
        return [type(value).__name__, pairs, self._plain(getattr(value, "__dict__", {}), keys)]

    def _items(self, values: Collection[Any], keys: Keys) -> list[object]:
        if set(map(type, values)) <= _JSON:
            return list(values)
        return [self._plain(item, (*keys, number)) for number, item in enumerate(values)]

    def _place(self, value: object, kind: Kind) -> int:
        """An array that is in the tree twice is stored once, and is one array again."""
        place = self._places.setdefault(id(value), len(self.found))
        if place == len(self.found):
            self.found.append((value, kind))
        return place

    def _compare(self, value: Any, read: Any, keys: Keys) -> None:
        """Return if `read` is equal to `value`: of the same types, in the same order, the same arrays."""
        if value is read:
            return
        if isinstance(read, _Place):
            is_same = self._places.get(id(value)) == read.number
        elif type(value) is not type(read):
            is_same = False
        elif isinstance(value, dict):
            is_same = len(value) == len(read)
            for (key, item), (key_read, item_read) in zip(value.items(), read.items(), strict=False):
                self._compare(key, key_read, (*keys, key))
                self._compare(item, item_read, (*keys, key))
            for name in ("default_factory", "__dict__"):
                is_same = is_same and getattr(value, name, None) == getattr(read, name, None)
        elif isinstance(value, list | tuple | deque):
            is_same = len(value) == len(read) and getattr(value, "maxlen", None) == getattr(read, "maxlen", None)
            if is_same and list(map(type, value)) == [int] * len(value) == list(map(type, read)) and value == read:
                return  # as Python's random numbers
            for number, (item, item_read) in enumerate(zip(value, read, strict=False)):
                self._compare(item, item_read, (*keys, number))
        elif isinstance(value, np.generic):
            is_same = (value.dtype, value.tobytes()) == (read.dtype, read.tobytes())
        else:
            # NaN is not equal to itself, and two times may be equal in different zones.
            is_same = value == read if isinstance(value, int | set | frozenset) else repr(value) == repr(read)
        if not is_same:
            raise _refused(keys, value, "does not come back equal when it is read")


@dataclass(frozen=True)
class _Place:
    """Where an array would be."""

    number: int


def tree_in(text: str | bytes, array: Callable[[int], object], packed: Callable[[int], object]) -> Any:
    """The tree of a text; `array` and `packed` return the arrays, and the other objects of the library, by number."""
    readers = {**_READERS, "array": array, "packed": packed}

    def full(value: Any) -> Any:
        if isinstance(value, list):
            return [full(item) for item in value]
        if not isinstance(value, dict):
            return value
        if _TAG not in value:
            return {key: full(item) for key, item in value.items()}
        kind, *parts = value[_TAG]
        return readers[kind](*parts) if kind in readers else _made(kind, full(parts))

    return full(json.loads(text))


def _made(kind: str, parts: list[Any]) -> Any:
    """A value of those that it holds."""
    if kind == "named":
        return tuple.__new__(_class(parts[0], parts[1], tuple), parts[2])
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](parts[0])
    if kind == "defaultdict":
        return defaultdict(_FACTORIES.get(parts[1]), parts[0])
    made = _MAPPINGS[kind]()
    for key, item in parts[0]:
        made[key] = item
    if parts[1]:
        made.__dict__.update(parts[1])
    return made


def _is_found(kind: type) -> bool:
    """Whether a class is found by its name, and not one within a function."""
    return _found(kind.__module__, kind.__qualname__) is kind


def _class(module: str, name: str, base: type) -> Any:
    """The class of a stored value."""
    found = _found(module, name)
    if not (isinstance(found, type) and issubclass(found, base)):
        message = f"it holds a {module}.{name}, which is not imported; import that before DiLoCo is created"
        raise ParametersError(message)
    return found


def _found(module: str, name: str) -> Any:
    """What is imported under a name. It is only looked up: nothing is executed."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found


def dtype_name(dtype: np.dtype[Any]) -> str | None:
    """The name of an element type by which `dtype_named` finds it again; None for one that has no bytes of its own."""
    if dtype.kind in "biufcmMSU" and dtype.itemsize:
        return dtype.str
    # bfloat16 and the types of 8 bits and less, as in JAX.
    return dtype.name if dtype.type.__module__ == "ml_dtypes" else None


def dtype_named(name: str) -> np.dtype[Any]:
    """The element type of a name."""
    try:
        return np.dtype(name)
    except TypeError:
        found: np.dtype[Any] = np.dtype(getattr(import_module("ml_dtypes"), name))
        return found


_READERS: dict[str, Callable[..., Any]] = {
    **{name: leaf.read for name, leaf in _LEAVES.items()},
    "scalar": lambda name, text: np.frombuffer(base64.b64decode(text), dtype_named(name))[0],
    "enum": lambda module, name, member: _class(module, name, Enum).__members__[member],
}


def _refused(keys: Keys, value: object, why: str) -> ParametersError:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, np.ndarray):
        name += f" of {value.dtype}"
    message = f"{_where(keys)} is of type {name} and {why}; allowed: {_ALLOWED}. Save what it is made of instead."
    return ParametersError(message)


def _where(keys: Keys) -> str:
    """How a user would write the place of a value of the state."""
    inner = keys[1:] if keys[:1] == ("own",) else keys
    first, *rest = inner or ("the state",)
    name = "trainer_state" if first == "trainer" else str(first)
    return name + "".join(f"[{key!r}]" for key in rest)
