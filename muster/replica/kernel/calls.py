"""The kernel's functions with the types of Python: each releases the GIL, and may run in several threads."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

# XXH3 treats up to 240 bytes in other ways: what is so small is left to NumPy.
PAYLOAD_BYTES_MIN = 241
ONE = np.float32(1)

_INT32, _INT64, _UINT32, _UINT64 = ctypes.c_int32, ctypes.c_int64, ctypes.c_uint32, ctypes.c_uint64
_FLOAT, _POINTER = ctypes.c_float, ctypes.c_void_p


class Format(IntEnum):
    """How a block's values are encoded, as the kernel numbers it."""

    FP32 = 1
    BF16 = 2
    FP16 = 3
    INT8 = 4
    INT4 = 5
    TOPK2 = 6
    TOPK8 = 7

    def keeping(self, kept: int) -> int:
        """A top-k format that keeps so many values of each chunk."""
        return self | kept << 8


@dataclass(frozen=True)
class Rows:
    """Records: one in each row of `content`, a checksum and a payload of at least PAYLOAD_BYTES_MIN.

    Attributes:
        format: a `Format`, or what `Format.keeping` makes of it.
        content: its rows are contiguous, and aligned to 4 bytes.
        elements: of each block.
        seed: of the first row's checksum; each of the next one's is larger by 1.
    """

    format: int
    content: Bytes
    elements: int
    seed: int


@dataclass(frozen=True)
class Source:
    """What is encoded: `values`, to which `added` is added first.

    Attributes:
        dither: for each value, what is added to it before it is rounded, and a random byte; and how many of 256 round
            each whole number up. None: to the nearest.
    """

    values: Floats
    added: Floats | None = None
    dither: tuple[Floats, Bytes, Bytes] | None = None


@dataclass(frozen=True)
class Destination:
    """Where values go: each times `weight`, in place of what is there or added to it; the result times `factor`."""

    place: Floats
    weight: np.float32 = ONE
    factor: np.float32 = ONE
    adds: bool = False

    def arguments(self) -> tuple[int | None, np.float32, np.float32, bool]:
        """As the kernel takes them."""
        return _address(self.place), self.weight, self.factor, self.adds


class Kernel:
    """The functions of a loaded library.

    Arrays are contiguous, and aligned to their items.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        """Declare what `library` exports.

        Raises:
            OSError: it exports something else.
        """
        try:
            self._encode, self._decode = library.muster_encode, library.muster_decode
            self._put, self._nesterov = library.muster_put, library.muster_nesterov
        except AttributeError as error:
            raise OSError(str(error)) from None
        self._encode.restype = self._decode.restype = _INT32
        self._put.restype = self._nesterov.restype = None
        rows = (_POINTER, _INT64)
        self._encode.argtypes = (
            *(_INT32, _POINTER, _POINTER, _INT64, _INT64, *rows, _UINT32, _POINTER, _POINTER, _POINTER),
            *(_POINTER, _POINTER, _UINT64),
        )
        self._decode.argtypes = (
            *(_INT32, *rows, _INT64, _INT64, _INT64, _UINT32, _UINT64),
            *(_POINTER, _FLOAT, _FLOAT, _INT32),
        )
        self._put.argtypes = (_POINTER, _INT64, _POINTER, _FLOAT, _FLOAT, _INT32)
        self._nesterov.argtypes = (_POINTER, _POINTER, _POINTER, _INT64, _FLOAT, _FLOAT)

    def encode(
        self,
        rows: Rows,
        source: Source,
        limit: np.float32,
        *,
        error: Floats | None = None,
        decoded: Floats | None = None,
    ) -> bool:
        """Encode whole blocks, with their checksums; False if a value is NaN, infinite or beyond `limit`.

        Then the blocks before it are encoded.

        Args:
            error, decoded: receive the codec's error, and the decoded values; each may be an array of `source`.
        """
        values, added = source.values, source.added
        offsets, random, shares = source.dither or (None, None, None)
        sizes = {array.size for array in (values, added, offsets, random, error, decoded) if array is not None}
        if sizes != {len(rows.content) * rows.elements}:
            message = f"arrays of {sorted(sizes)} elements do not fit {len(rows.content)} blocks of {rows.elements}"
            raise ValueError(message)
        found = self._encode(
            rows.format,
            _address(values),
            _address(added),
            len(rows.content),
            rows.elements,
            rows.content.ctypes.data,
            rows.content.strides[0],
            _bits(limit),
            *(_address(array) for array in (offsets, random, shares, error, decoded)),
            rows.seed,
        )
        return bool(found == 0)

    def decode(self, rows: Rows, count: int, limit: np.float32, target: Destination | None) -> bool:
        """Verify records, and put the first `count` of their values into `target` (None: nowhere).

        Args:
            limit: the largest magnitude that a value may have.

        Returns:
            False if a record is damaged, or may hold something that is not allowed. `target` is as it was then.
        """
        if target is not None and target.place.size != count:
            message = f"{count} values do not fit {target.place.size} elements"
            raise ValueError(message)
        found = self._decode(
            rows.format,
            rows.content.ctypes.data,
            rows.content.strides[0],
            len(rows.content),
            rows.elements,
            count,
            _bits(limit),
            rows.seed,
            *(None, 1.0, 1.0, False) if target is None else target.arguments(),
        )
        return bool(found == 0)

    def put(self, values: Floats, target: Destination) -> None:
        """Put values into `target`."""
        self._put(_address(values), values.size, *target.arguments())

    def nesterov(self, parameters: Floats, momentum: Floats, gradient: Floats, mu: np.float32, eta: np.float32) -> None:
        """One step of SGD with Nesterov momentum, in place."""
        self._nesterov(_address(parameters), _address(momentum), _address(gradient), parameters.size, mu, eta)


def _address(array: Floats | Bytes | None) -> int | None:
    if array is None:
        return None
    if not array.flags.c_contiguous:
        message = "the kernel needs contiguous arrays"
        raise ValueError(message)
    return int(array.ctypes.data)


def _bits(value: np.float32) -> int:
    return int(value.view(np.uint32))
