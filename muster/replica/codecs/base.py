"""What every codec does: encodes blocks of float32 values into a fixed number of bytes, and decodes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Payload = NDArray[np.uint8]
N = TypeVar("N", bound=np.generic)

# Far above any gradient or parameter; sums of thousands stay below float32's limit (3.4e38).
MAGNITUDE_MAX = np.float32(1e30)
# The limit of codecs that round: rounding up never exceeds MAGNITUDE_MAX.
ROUNDED_MAX = np.float32(9.9e29)


class CodecError(ValueError):
    """Bytes that cannot be decoded, or values that cannot be encoded; says what is wrong with them."""


class Codec(ABC):
    """Encodes each block of values into `payload_bytes` bytes, whatever the values, so that any block can be located.

    A codec has no state. Blocks are the rows of a matrix, a few at a time, so that a call's data fit into the cache.
    `encode` is deterministic: the same bytes on every machine.
    """

    name: str
    """The name in `Algorithm` and the docs."""
    version: ClassVar[int] = 1
    grain: ClassVar[int] = 256
    """A block's elements are a multiple of this."""
    limit: ClassVar[np.float32] = ROUNDED_MAX
    """The largest magnitude that can be encoded."""
    elementwise: ClassVar[bool] = False
    """Whether each value is encoded by itself, so that decoded values do not depend on where a vector is cut."""
    loses: ClassVar[bool] = True
    """Whether the decoded values may differ from the encoded ones."""
    needs_feedback: ClassVar[bool] = False
    """Whether what it loses is no error of rounding, and has to be sent later."""
    kernel_format: int | None = None
    """The format of the compiled kernel that has the same bytes; None: it has none."""

    @property
    def label(self) -> str:
        """Name and version, as in an object's header."""
        return f"{self.name}/{self.version}"

    @abstractmethod
    def payload_bytes(self, elements: int) -> int:
        """Bytes of an encoded block of `elements` values, a multiple of 4."""

    @abstractmethod
    def encode(self, values: Floats, payload: Payload, dither: Dither | None) -> None:
        """Encode the rows of `values` into the rows of `payload`.

        Args:
            values: C-contiguous, (blocks, elements).
            payload: (blocks, payload_bytes(elements)), its rows contiguous and aligned to 4 bytes; overwritten.
            dither: round up or down at random, so that the expected result is the value itself if it lies between two
                levels; None: to the nearest.

        Raises:
            CodecError: values that are NaN, infinite or beyond `limit`.
        """

    @abstractmethod
    def decode(self, payload: Payload, values: Floats) -> None:
        """The reverse of `encode`.

        Raises:
            CodecError: bytes that `encode` never writes. The caller checks the values for NaN and infinity.
        """

    def values(self, payload: Payload, room: Floats) -> Floats:
        """The values that `decode` puts into `room`: in `room`, or as they lie in `payload`, which saves the copy.

        Raises:
            CodecError: as `decode`.
        """
        self.decode(payload, room)
        return room

    def for_mean(self, members: int) -> Codec:  # noqa: ARG002 - sparse codecs depend on it
        """The codec for the mean of `members` vectors in this codec."""
        return self


def is_usable(values: Floats, limit: np.float32 = MAGNITUDE_MAX) -> bool:
    """Whether every value is within ±limit, and none is NaN."""
    # max and min propagate NaN, and NaN fails every comparison.
    return not values.size or bool(values.max() <= limit and values.min() >= -limit)


def refuse_unusable(values: Floats, limit: np.float32) -> None:
    """Return if `is_usable`.

    Raises:
        CodecError: a value is beyond ±limit, or NaN.
    """
    if not is_usable(values, limit):
        raise unusable(limit)


def unusable(limit: np.float32) -> CodecError:
    """The error for a value that is beyond ±limit, or NaN."""
    return CodecError(f"it holds NaN, infinity or values beyond {limit:.0e}")


class Dither:
    """Pseudo-random numbers that follow from the object's key: every process that encodes it uses the same ones.

    A shard of a mean is encoded without error feedback, because every member must write the same bytes. Rounding to the
    nearest would drop, round after round, values that are small beside their neighbours; and the residual that error
    feedback finally sends, one step of one member, is always small in a mean of many. Random rounding keeps it on
    average. Only what lies beyond the last level is always rounded to that one: in int4 values below -108/127 of their
    group's scale.
    """

    PERIOD = 65_536

    def __init__(self, seed: int, block: int) -> None:
        """For the blocks from `block` on of the object with `seed`."""
        self._start = int(_mixed(np.array([(seed << 32) ^ block], np.uint64))[0] % self.PERIOD)

    def offsets(self, count: int) -> Floats:
        """Up to PERIOD numbers within ±0.5, to be added before rounding to whole numbers."""
        return _OFFSETS[self._start : self._start + count]

    def bytes(self, count: int) -> NDArray[np.uint8]:
        """Up to PERIOD numbers from 0 to 255, independent of the offsets."""
        return _BYTES[self._start : self._start + count]


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea, Flood 2014), on a sequence of its increments."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _twice(numbers: NDArray[N]) -> NDArray[N]:
    return np.concatenate([numbers, numbers])


_RANDOM = _mixed(np.arange(1, Dither.PERIOD + 1, dtype=np.uint64))
# The centres of 65,536 equal parts of (-0.5, 0.5): never an end, which could round beyond the largest code.
_PARTS = (_RANDOM >> np.uint64(48)).astype(np.float32)
_OFFSETS: Floats = _twice((_PARTS + np.float32(0.5)) / np.float32(65_536) - np.float32(0.5))
_BYTES: NDArray[np.uint8] = _twice((_RANDOM & np.uint64(255)).astype(np.uint8))
