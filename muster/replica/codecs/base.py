"""What every codec promises: how blocks of float32 values become bytes of a fixed number, and come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Payload = NDArray[np.uint8]

# Far above any gradient or parameter, far enough below float32's limit (3.4e38) that sums of thousands stay finite.
MAGNITUDE_MAX = np.float32(1e30)
# Codecs that round do so below this: no rounding upwards takes a value beyond MAGNITUDE_MAX.
ROUNDED_MAX = np.float32(9.9e29)


class CodecError(ValueError):
    """Bytes that are not what they should be, or values that cannot be coded; says what is wrong with them."""


class Codec(ABC):
    """Codes blocks of values, each into `payload_bytes` bytes whatever the values are, so that any block can be found.

    A codec has no state. Blocks come as the rows of a matrix, a few at a time: what a call touches fits into a core's
    cache. `encode` is deterministic: the same bytes on every machine.
    """

    name: str
    """How a user asks for it."""
    version: ClassVar[int] = 1
    grain: ClassVar[int] = 256
    """A block's elements are a multiple of this."""
    limit: ClassVar[np.float32] = ROUNDED_MAX
    """The largest magnitude that can be coded."""
    loses: ClassVar[bool] = True
    """Whether the decoded values may differ from the encoded ones."""

    @property
    def label(self) -> str:
        """Name and version, as in an object's header."""
        return f"{self.name}/{self.version}"

    @abstractmethod
    def payload_bytes(self, elements: int) -> int:
        """Bytes of a coded block of `elements` values, a multiple of 4."""

    @abstractmethod
    def encode(self, values: Floats, payload: Payload, dither: Dither | None) -> None:
        """Code the rows of `values` into the rows of `payload`.

        Args:
            values: C-contiguous, (blocks, elements).
            payload: (blocks, payload_bytes(elements)), its rows contiguous and aligned to 4 bytes; overwritten.
            dither: round up or down by chance, so that the mean over many is the value itself; None: to the nearest.

        Raises:
            CodecError: values that are NaN, infinite or beyond `limit`.
        """

    @abstractmethod
    def decode(self, payload: Payload, values: Floats) -> None:
        """The reverse of `encode`.

        Raises:
            CodecError: bytes that `encode` never gives. What is NaN or infinite the caller finds in the values.
        """

    def for_mean(self, members: int) -> Codec:  # noqa: ARG002 - what a sparse codec depends on
        """The codec for the mean of `members` vectors in this codec."""
        return self


def refuse_unusable(values: Floats, limit: np.float32) -> None:
    """Return if every value lies within ±limit.

    Raises:
        CodecError: one does not, or is NaN.
    """
    # Reducing carries NaN along, and NaN fails every comparison.
    if values.size and not (values.max() <= limit and values.min() >= -limit):
        message = f"it holds NaN, infinity or values beyond {limit:.0e}"
        raise CodecError(message)


class Dither:
    """Numbers that look random and are the same for whoever codes the same object.

    A shard of a mean is coded without error feedback: whoever makes it must write the same bytes. Rounding to the
    nearest would then drop, round after round, much of what is small beside its neighbours; and what error feedback
    sends at last, one step of one member, is always small in a mean of many. Rounded by chance, it passes on average.
    """

    PERIOD = 65_536

    def __init__(self, seed: int, block: int) -> None:
        """For the blocks from `block` on of the object that `seed` stands for."""
        self._start = int(_mixed(np.array([(seed << 32) ^ block], np.uint64))[0] % self.PERIOD)

    def offsets(self, count: int) -> Floats:
        """Up to PERIOD numbers within ±0.5, for what is rounded to whole numbers."""
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


def _twice(numbers: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([numbers, numbers])


_RANDOM = _mixed(np.arange(1, Dither.PERIOD + 1, dtype=np.uint64))
# The middles of 65,536 equal parts of (-0.5, 0.5): never an end, which could round beyond the largest code.
_OFFSETS: Floats = _twice(((_RANDOM >> np.uint64(48)).astype(np.float32) + np.float32(0.5)) / 65_536 - np.float32(0.5))
_BYTES: NDArray[np.uint8] = _twice((_RANDOM & np.uint64(255)).astype(np.uint8))
