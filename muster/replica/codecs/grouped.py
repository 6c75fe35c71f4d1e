"""Codecs with a scale for each group of values: int8 and int4.

A block's payload is its groups' scales (2 bytes each, see `scales`), then the codes. A group is a run of neighbours.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from muster.replica.codecs.base import Codec, Dither, Floats, Payload, refuse_unusable
from muster.replica.codecs.scales import SCALE_BYTES, decode_scales, encode_scales, inverse

TOP = 127  # a group's largest magnitude, in whole numbers


class _Grouped(Codec):
    group: ClassVar[int]
    bits: ClassVar[int]

    def payload_bytes(self, elements: int) -> int:
        """The scales, and the codes."""
        return elements // self.group * SCALE_BYTES + elements * self.bits // 8

    def encode(self, values: Floats, payload: Payload, dither: Dither | None) -> None:
        """Scale each group by its extreme and round to whole numbers, from which the codes follow."""
        blocks, elements = values.shape
        flat = values.reshape(-1)
        starts = np.arange(0, flat.size, self.group)
        most, least = np.maximum.reduceat(flat, starts), np.minimum.reduceat(flat, starts)
        refuse_unusable(most, self.limit)
        refuse_unusable(least, self.limit)
        scales = encode_scales(self._peaks(most, least))
        scaled = flat.reshape(-1, self.group) * inverse(decode_scales(scales), TOP)[:, None]
        if dither is not None:
            scaled.reshape(-1)[...] += dither.offsets(flat.size)
        whole = np.rint(scaled, out=scaled).astype(np.int8)
        split = elements // self.group * SCALE_BYTES
        payload[:, :split] = scales.view(np.uint8).reshape(blocks, split)
        payload[:, split:] = self._codes(whole.reshape(-1), dither).reshape(blocks, -1)

    def decode(self, payload: Payload, values: Floats) -> None:
        """The whole numbers times the scales."""
        blocks, elements = values.shape
        split = elements // self.group * SCALE_BYTES
        scales = decode_scales(np.ascontiguousarray(payload[:, :split]).view(np.uint16)) / np.float32(TOP)
        self._whole(payload[:, split:], values)
        values.reshape(blocks, -1, self.group)[...] *= scales[:, :, None]

    @abstractmethod
    def _peaks(self, most: Floats, least: Floats) -> Floats:
        """The value that a group's scale must reach, from its largest and its smallest value."""

    @abstractmethod
    def _codes(self, whole: NDArray[np.int8], dither: Dither | None) -> Payload:
        """The codes of whole numbers from -127 to 127."""

    @abstractmethod
    def _whole(self, codes: Payload, values: Floats) -> None:
        """The whole numbers of the codes."""


class Int8(_Grouped):
    """Whole numbers from -127 to 127, times a scale per 128 values: 8.125 bits per value.

    |error| <= 0.004 times the group's largest magnitude (half of 1/127, plus the rounding of the scale),
    0.008 with dither.
    """

    name = "int8"
    group = 128
    bits = 8

    def _peaks(self, most: Floats, least: Floats) -> Floats:
        return np.maximum(most, -least)

    def _codes(self, whole: NDArray[np.int8], dither: Dither | None) -> Payload:  # noqa: ARG002 - applied already
        return whole.view(np.uint8)

    def _whole(self, codes: Payload, values: Floats) -> None:
        values[...] = codes.view(np.int8)


# The 16 levels of a 4-bit code, in 127ths of the group's scale, and the nearest level of each int8.
LEVELS = np.array([-108, -82, -63, -47, -33, -20, -10, 0, 9, 19, 31, 44, 58, 76, 97, 127], np.float32)
_INT8 = np.arange(256).astype(np.uint8).view(np.int8).astype(np.float32)  # by the code read as an unsigned byte
_NEAREST = np.abs(_INT8[:, None] - LEVELS).argmin(axis=1)
_BELOW = np.clip(np.searchsorted(LEVELS, _INT8, side="right") - 1, 0, None)
# Of 256 random bytes, how many round up to the next level. Values below the lowest level always round to it.
_GAPS = np.append(np.diff(LEVELS), np.float32(1))
_SHARES = np.clip(np.rint((_INT8 - LEVELS[_BELOW]) / _GAPS[_BELOW] * 256), 0, 255)
_NEAREST_TABLE, _BELOW_TABLE, _SHARES_TABLE = (
    table.astype(np.uint8).tobytes() for table in (_NEAREST, _BELOW, _SHARES)
)
# A byte holds two codes: one lookup gives two values.
_PAIRS = LEVELS[np.arange(256)[:, None] >> np.array([0, 4]) & 15].astype(np.float32).view(np.uint64).reshape(-1)


class Int4(_Grouped):
    """One of 16 levels, times a scale per 64 values: 4.25 bits per value.

    The scale is the group's extreme value with its sign: the extreme is always the topmost level, which frees the
    lowest one. The levels are a Lloyd-Max quantizer for values so scaled, fitted half to normal
    and half to Laplace noise, with an exact zero, rounded to 127ths. Candidates were measured on 2^20 values with a
    bfloat16 scale per 64; the mean squared error in % of the mean square (rows t5: Student's t of 5 degrees in rows
    of 1024 whose scales are log-normal):

    | grid | normal | Laplace | Student's t3 | 90 % zeros | rows t5 |
    |---|---|---|---|---|---|
    | E3M0 | 3.53 | 3.16 | 2.46 | 2.06 | 3.12 |
    | E2M1 | 1.12 | 1.26 | 1.60 | 0.65 | 1.27 |
    | -7..7 | 1.16 | 1.98 | 3.31 | 0.48 | 2.12 |
    | -7..8, signed scale | 0.91 | 1.54 | 2.62 | 0.38 | 1.65 |
    | NF4 | 0.85 | 1.08 | 1.54 | 0.47 | 1.10 |
    | this | 0.76 | 0.96 | 1.33 | 0.40 | 1.00 |

    |error| <= 0.16 times the group's largest magnitude to the nearest, 0.25 with dither.
    """

    name = "int4"
    group = 64
    bits = 4

    def _peaks(self, most: Floats, least: Floats) -> Floats:
        return np.where(most >= -least, most, least)

    def _codes(self, whole: NDArray[np.int8], dither: Dither | None) -> Payload:
        if dither is None:
            codes = _looked_up(whole, _NEAREST_TABLE)
        else:
            codes = _looked_up(whole, _BELOW_TABLE) + (dither.bytes(whole.size) < _looked_up(whole, _SHARES_TABLE))
        pairs = codes.view(np.uint16)
        return (pairs | pairs >> np.uint16(4)).astype(np.uint8)

    def _whole(self, codes: Payload, values: Floats) -> None:
        np.take(_PAIRS, codes, out=values.view(np.uint64), mode="clip")


def _looked_up(whole: NDArray[np.int8], table: bytes) -> NDArray[np.uint8]:
    """`table` at each of `whole`: bytes.translate takes 0.7 ns per byte, NumPy's take 0.9."""
    return np.frombuffer(whole.tobytes().translate(table), np.uint8)
