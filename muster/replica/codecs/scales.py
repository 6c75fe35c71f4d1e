"""Scales: the upper half of a float32, rounded away from zero, within bounds that are checked when read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from muster.replica.codecs.base import MAGNITUDE_MAX, CodecError, Floats

Scales = NDArray[np.uint16]

SCALE_BYTES = 2
# A smaller scale becomes zero, with all its values: its inverse times a code must stay far from float32's limits.
SCALE_MIN = np.float32(2.0**-100)

_SIGN = np.uint16(0x8000)
_HALF = np.uint32(16)
_LOWER = np.uint32(0x0000FFFF)
_LEAST = np.uint16(int(SCALE_MIN.view(np.uint32)) >> 16)
_MOST = np.uint16(int(MAGNITUDE_MAX.view(np.uint32)) >> 16)


def encode_scales(peaks: Floats) -> Scales:
    """Scales of the sign of `peaks`, as large or up to 2^-7 larger, relative; 0 for those below SCALE_MIN."""
    bits = np.ascontiguousarray(peaks).view(np.uint32) + _LOWER
    bits[np.abs(peaks) < SCALE_MIN] = 0
    return (bits >> _HALF).astype(np.uint16)


def decode_scales(scales: Scales) -> Floats:
    """The scales as float32.

    Raises:
        CodecError: NaN, infinity, or beyond the bounds.
    """
    magnitudes = scales & ~_SIGN
    if not np.all((scales == 0) | ((magnitudes >= _LEAST) & (magnitudes <= _MOST))):
        message = f"it holds a scale that is not 0 or between {SCALE_MIN:.0e} and {MAGNITUDE_MAX:.0e}"
        raise CodecError(message)
    return (scales.astype(np.uint32) << _HALF).view(np.float32)


def inverse(scales: Floats, top: int) -> Floats:
    """Factors that bring values of these scales to ±top; 0 where the scale is 0."""
    return np.divide(np.float32(top), scales, out=np.zeros_like(scales), where=scales != 0)
