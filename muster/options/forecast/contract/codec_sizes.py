"""What a codec makes of values: its bytes, and how fast one core is. Pure; a test holds the bytes to the codecs."""

from __future__ import annotations

from typing import NamedTuple

_CHUNK = 4096
_BITS = {"fp32": 32.0, "bf16": 16.0, "fp16": 16.0, "int8": 8.125, "int4": 4.25}


class Rates(NamedTuple):
    """Bytes of float32 values a second: of a contribution with its error feedback, of a mean, and read."""

    encode: float
    mean: float
    decode: float


_RATES = {
    "fp32": Rates(3.0e9, 2.5e9, 4.6e9),
    "bf16": Rates(4.3e9, 3.2e9, 5.0e9),
    "fp16": Rates(4.4e9, 3.1e9, 5.4e9),
    "int8": Rates(5.6e9, 3.3e9, 6.2e9),
    "int4": Rates(3.8e9, 2.2e9, 5.1e9),
    "topk2": Rates(1.7e9, 1.7e9, 3.3e9),
}
"""Of one busy core, by docs/rendezvous-codecs.md."""


def rates(codec: str) -> Rates:
    """Those of a codec."""
    return _RATES[codec.partition("-")[0]]


def bits(codec: str, members: int | None = None) -> float:
    """Bits of a value in a contribution, or in the mean of so many; without headers and checksums, which are small."""
    if codec in _BITS:
        return _BITS[codec]
    kept = int(codec.partition("-")[2])
    if members is None:
        return _sparse_bits(kept, scales=2, of_value=2)
    every = -(-kept * members // 8) * 8  # the mean has the places of all, or is int4
    return _BITS["int4"] if every >= _CHUNK else min(_BITS["int4"], _sparse_bits(every, scales=1, of_value=8))


def _sparse_bits(kept: int, *, scales: int, of_value: int) -> float:
    """Scales, places by Elias and Fano, and codes of a chunk."""
    lower = (_CHUNK // kept).bit_length() - 1
    return (16 * scales + kept + (_CHUNK >> lower) + kept * lower + kept * of_value) / _CHUNK
