"""Codecs that encode each value separately: fp32, bf16, fp16."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from muster.replica.codecs.base import MAGNITUDE_MAX, Codec, Dither, Floats, Payload, refuse_unusable
from muster.replica.kernel import Format


class _Plain(Codec):
    """Values one after another, each in a float type, independent of its neighbours."""

    elementwise = True
    dtype: ClassVar[np.dtype[np.generic]]

    def payload_bytes(self, elements: int) -> int:
        """The values alone."""
        return elements * self.dtype.itemsize

    def encode(self, values: Floats, payload: Payload, dither: Dither | None) -> None:  # noqa: ARG002 - not needed at this precision
        """Convert to the type, rounding to the nearest."""
        refuse_unusable(values, self.limit)
        payload.view(self.dtype)[...] = values

    def decode(self, payload: Payload, values: Floats) -> None:
        """Convert back, which is exact."""
        values[...] = payload.view(self.dtype)


class Fp32(_Plain):
    """float32 as it is, 4 bytes per value."""

    name = "fp32"
    kernel_format = Format.FP32
    limit = MAGNITUDE_MAX
    loses = False
    dtype = np.dtype("<f4")

    def values(self, payload: Payload, room: Floats) -> Floats:
        """The payload itself, where this machine can calculate with it: its order of bytes, and aligned."""
        found = payload.view(self.dtype)
        return found if found.dtype == room.dtype and found.flags.aligned else super().values(payload, room)


class Fp16(_Plain):
    """float16 (IEEE 754 binary16), to the nearest: |error| <= max(2^-11 |value|, 2^-25), for values up to 65,504."""

    name = "fp16"
    kernel_format = Format.FP16
    limit = np.float32(65_504)
    dtype = np.dtype("<f2")


class Bf16(_Plain):
    """The upper half of a float32, to the nearest, ties to even: |error| <= 2^-8 |value| (and 2^-134 near zero)."""

    name = "bf16"
    kernel_format = Format.BF16
    dtype = np.dtype("<u2")

    def encode(self, values: Floats, payload: Payload, dither: Dither | None) -> None:  # noqa: ARG002 - not needed at this precision
        """Round the upper half by the lower one."""
        refuse_unusable(values, self.limit)
        bits = values.view(np.uint32)
        rounded = bits >> np.uint32(16)
        rounded &= np.uint32(1)
        rounded += bits
        rounded += np.uint32(0x7FFF)
        rounded >>= np.uint32(16)
        payload.view(self.dtype)[...] = rounded

    def decode(self, payload: Payload, values: Floats) -> None:
        """Append a lower half of zeros."""
        bits = values.view(np.uint32)
        bits[...] = payload.view(self.dtype)
        bits <<= np.uint32(16)
