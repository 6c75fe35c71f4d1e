"""Codecs with a scale for each group of values: int8 and int4.

A block's payload is its groups' scales (2 bytes each, see `scales`), then the codes. A group is a run of neighbours.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from muster.replica.codecs.base import Codec, Dither, Floats, Payload, refuse_unusable
from muster.replica.codecs.scales import SCALE_BYTES, decode_scales, inverse, put_scales, rounded_scales
from muster.replica.codecs.scratch import Scratch, scratch
from muster.replica.kernel import Format

TOP = 127  # a group's largest magnitude, in whole numbers


class _Grouped(Codec):
    group: ClassVar[int]
    bits: ClassVar[int]

    def payload_bytes(self, elements: int) -> int:
        """The scales, and the codes."""
        return elements // self.group * SCALE_BYTES + elements * self.bits // 8

    def encode(self, values: Floats, payload: Payload, dither: Dither | None) -> None:
        """Scale each group by its extreme and round to whole numbers, from which the codes follow."""
        self._encode(values, payload, dither)

    def encode_both(self, values: Floats, payload: Payload, dither: Dither | None, decoded: Floats) -> None:
        """As `encode`; the whole numbers and the scales are at hand."""
        scales = self._encode(values, payload, dither)
        scales /= np.float32(TOP)
        flat = decoded.reshape(-1)
        np.multiply(self._levels(scratch(values.size)), np.repeat(scales, self.group), out=flat)

    def _encode(self, values: Floats, payload: Payload, dither: Dither | None) -> Floats:
        """Encode; the scales."""
        blocks, elements = values.shape
        flat, room = values.reshape(-1), scratch(values.size)
        most, least = _extremes(flat, self.group, room)
        magnitudes = np.maximum(most, -least)
        refuse_unusable(magnitudes, self.limit)
        scales = rounded_scales(self._peaks(most, least, magnitudes), magnitudes)
        scaled = np.multiply(flat, np.repeat(inverse(scales, TOP), self.group), out=room.floats)
        if dither is not None:
            scaled += dither.offsets(flat.size)
        np.rint(scaled, out=scaled)
        np.copyto(room.whole, scaled, casting="unsafe")
        split = elements // self.group * SCALE_BYTES
        put_scales(scales, payload[:, :split])
        payload[:, split:] = self._codes(room, dither).reshape(blocks, -1)
        return scales

    def decode(self, payload: Payload, values: Floats) -> None:
        """The whole numbers times the scales."""
        split = values.shape[1] // self.group * SCALE_BYTES
        scales = decode_scales(np.ascontiguousarray(payload[:, :split]).view(np.uint16)).reshape(-1)
        scales /= np.float32(TOP)
        self._whole(payload[:, split:], values)
        flat = values.reshape(-1)
        flat *= np.repeat(scales, self.group)

    @abstractmethod
    def _peaks(self, most: Floats, least: Floats, magnitudes: Floats) -> Floats:
        """The values that the groups' scales must reach, from their extremes and the larger magnitude of both."""

    @abstractmethod
    def _codes(self, room: Scratch, dither: Dither | None) -> Payload:
        """The codes of whole numbers from -127 to 127: of those in `room.whole`."""

    @abstractmethod
    def _levels(self, room: Scratch) -> Floats:
        """The whole numbers of the codes that `_codes` has just made."""

    @abstractmethod
    def _whole(self, codes: Payload, values: Floats) -> None:
        """The whole numbers of the codes."""


class Int8(_Grouped):
    """Whole numbers from -127 to 127, times a scale per 128 values: 8.125 bits per value.

    |error| <= 0.004 times the group's largest magnitude (half of 1/127, plus the rounding of the scale),
    0.008 with dither.
    """

    name = "int8"
    kernel_format = Format.INT8
    group = 128
    bits = 8

    def _peaks(self, most: Floats, least: Floats, magnitudes: Floats) -> Floats:  # noqa: ARG002 - the sign is a code's
        return magnitudes

    def _codes(self, room: Scratch, dither: Dither | None) -> Payload:  # noqa: ARG002 - applied already
        return room.whole.view(np.uint8)

    def _levels(self, room: Scratch) -> Floats:
        # Not what was rounded, which may be -0.
        np.copyto(room.floats, room.whole)
        return room.floats

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


def _packed(codes: NDArray[np.integer]) -> NDArray[np.uint8]:
    return (codes[:, 0] | codes[:, 1] << 4).astype(np.uint8)


# One look-up for two values, whose int8 are the bytes of an index: the byte that holds the codes of both.
_TWO = np.arange(1 << 16, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
_NEAREST_TABLE, _BELOW_TABLE = _packed(_NEAREST[_TWO]), _packed(_BELOW[_TWO])
SHARES = _SHARES.astype(np.uint8)  # by the whole number as an unsigned byte
_SHARES_TABLE = SHARES[_TWO].view(np.uint16).reshape(-1)
# One for four, whose codes are two bytes: their levels.
_LEVELS_TABLE = LEVELS.astype(np.int8)[_TWO[:, :, None] >> np.array([0, 4]) & 15].reshape(-1, 4).view(np.uint32)[:, 0]


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
    kernel_format = Format.INT4
    group = 64
    bits = 4

    def _peaks(self, most: Floats, least: Floats, magnitudes: Floats) -> Floats:
        np.copyto(least, most, where=most == magnitudes)
        return least

    def _codes(self, room: Scratch, dither: Dither | None) -> Payload:
        places, codes = room.places, room.codes
        np.copyto(places, room.whole.view(np.uint16))
        if dither is None:
            return _NEAREST_TABLE.take(places, out=codes, mode="clip")
        _BELOW_TABLE.take(places, out=codes, mode="clip")
        shares = _SHARES_TABLE.take(places, out=room.shares, mode="clip").view(np.uint8)
        above = (dither.bytes(shares.size) < shares).view(np.uint16)
        # The highest level has no share, so that no code overflows into its neighbour.
        codes += (above | above >> np.uint16(4)).astype(np.uint8)
        return codes

    def _levels(self, room: Scratch) -> Floats:
        self._whole(room.codes[None], room.floats[None])
        return room.floats

    def _whole(self, codes: Payload, values: Floats) -> None:
        room = scratch(values.size)
        places = room.places[: values.size // 4]
        np.copyto(places.reshape(len(codes), -1), codes.view(np.uint16))
        levels = _LEVELS_TABLE.take(places, out=room.levels, mode="clip")
        np.copyto(values.reshape(-1), levels.view(np.int8))


def _extremes(flat: Floats, group: int, room: Scratch) -> tuple[Floats, Floats]:
    """Of each group the largest value and the smallest one; both are the same where all have one sign, or are zeros.

    Found by the bits: as signed numbers the positive values are the largest, as unsigned ones the negative, and within
    either a larger magnitude is larger. NaN is larger than infinity. Whole numbers take half the time of values.
    """
    starts = room.starts.get(group)
    if starts is None:
        starts = room.starts[group] = np.arange(0, flat.size, group)
    most, least = (np.maximum.reduceat(flat.view(kind), starts) for kind in (np.int32, np.uint32))
    return most.view(np.float32), least.view(np.float32)
