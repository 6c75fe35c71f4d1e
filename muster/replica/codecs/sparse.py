"""Codecs that keep the largest values of each chunk: top-k with 2 bits per value, and the codec of their means.

As in SparseLoCo (arXiv 2508.15706): chunks of 4096 values, of which k are kept, with 2 bits each. k and a chunk's size
are fixed: any block can be located without an index.

| part of a chunk | bytes |
|---|---|
| scales (see `scales`): two with 2 bits per value, one with 8 | 2 each |
| upper bits of the ascending places, in unary: for the i-th from 0, bit (place >> l) + i | (k + (4096 >> l)) / 8 |
| lower l bits of the places, one after another | k l / 8 |
| codes of the values, in the same order | k / 4 or k |

Bits fill bytes from the most significant one; l = floor(log2(4096 / k)). This is the code of Elias and Fano: a place
takes 8 bits for k = 64 and 7 for k = 128, where log2(binomial(4096, k)) / k is 7.4 and 6.4.
A block holds each part of all its chunks together, in this order.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from muster.replica.codecs.base import Codec, CodecError, Dither, Floats, Payload, refuse_unusable
from muster.replica.codecs.grouped import TOP, Int4
from muster.replica.codecs.scales import SCALE_BYTES, decode_scales, encode_scales, inverse
from muster.replica.kernel import Format

CHUNK = 4096
KEPT_MIN = 16
KEPT_MAX = 512

Places = NDArray[np.int64]


class _Sparse(Codec):
    """Keeps `kept` values of each chunk, the others are zero."""

    grain = CHUNK
    needs_feedback = True
    scales: ClassVar[int]
    bits: ClassVar[int]
    kernel: ClassVar[Format]

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.name = f"topk{self.bits}-{kept}"
        self.kernel_format = self.kernel.keeping(kept)
        self._lower_bits = (CHUNK // kept).bit_length() - 1
        self._upper_bits = kept + (CHUNK >> self._lower_bits)
        sizes = (self.scales * SCALE_BYTES, self._upper_bits // 8, kept * self._lower_bits // 8, kept * self.bits // 8)
        self._ends = np.cumsum(sizes)

    def payload_bytes(self, elements: int) -> int:
        """All parts of all chunks, and up to 3 zeros behind them."""
        return -(-elements // CHUNK * int(self._ends[-1]) // 4) * 4

    def encode(self, values: Floats, payload: Payload, dither: Dither | None) -> None:  # noqa: ARG002 - not needed at this precision
        """Choose each chunk's places, and code places and values."""
        refuse_unusable(values, self.limit)
        chunks = values.reshape(-1, CHUNK)
        places = _largest(chunks, self.kept)
        scales, codes = self._coded(np.take_along_axis(chunks, places, axis=1))
        parts = (encode_scales(scales).view(np.uint8), self._upper(places), self._lower(places), codes)
        payload[...] = 0
        for where, part in zip(self._parts(values.shape[1]), parts, strict=True):
            payload[:, where] = part.reshape(len(values), -1)

    def decode(self, payload: Payload, values: Floats) -> None:
        """The values at their places, zeros between them."""
        chunks = values.reshape(-1, CHUNK)
        scales, upper, lower, codes = (
            np.ascontiguousarray(payload[:, where]).reshape(len(chunks), -1) for where in self._parts(values.shape[1])
        )
        places = self._places(upper, lower)
        chunks[...] = 0
        np.put_along_axis(chunks, places, self._valued(decode_scales(scales.view(np.uint16)), codes), axis=1)

    @abstractmethod
    def _coded(self, kept: Floats) -> tuple[Floats, Payload]:
        """Scales and codes of the kept values, a chunk in each row."""

    @abstractmethod
    def _valued(self, scales: Floats, codes: Payload) -> Floats:
        """The kept values of scales and codes."""

    def _parts(self, elements: int) -> list[slice]:
        edges = [0, *(int(end) * (elements // CHUNK) for end in self._ends)]
        return [slice(start, stop) for start, stop in pairwise(edges)]

    def _upper(self, places: Places) -> Payload:
        bits = np.zeros((len(places), self._upper_bits), np.uint8)
        np.put_along_axis(bits, (places >> self._lower_bits) + np.arange(self.kept), 1, axis=1)
        return np.packbits(bits, axis=1)

    def _lower(self, places: Places) -> Payload:
        return _packed(places, self._lower_bits)

    def _places(self, upper: Payload, lower: Payload) -> Places:
        rows, ones = np.nonzero(np.unpackbits(upper, axis=1))
        if not np.array_equal(rows, np.repeat(np.arange(len(upper)), self.kept)):
            message = f"it holds a chunk that does not keep {self.kept} values"
            raise CodecError(message)
        high = ones.reshape(-1, self.kept) - np.arange(self.kept)
        places = (high << self._lower_bits) | _unpacked(lower, self._lower_bits, self.kept)
        if places.max() >= CHUNK or not np.all(places[:, 1:] > places[:, :-1]):
            message = "it holds a chunk whose places are not in ascending order"
            raise CodecError(message)
        return places


class TopK(_Sparse):
    """The k largest values of each chunk, each as one of two magnitudes with a sign: `topk2-64`, `topk2-128`, ...

    The two magnitudes are the means of the kept magnitudes above and below their mean, one step of Lloyd's method.
    |error| of a kept value <= the chunk's largest magnitude, that of another is its own magnitude, which is no larger
    than any kept one. The mean of several such vectors is coded without leaving out any place that one of them kept.
    """

    scales = 2
    bits = 2
    kernel = Format.TOPK2

    def for_mean(self, members: int) -> Codec:
        """Sparse, with the places of all members, if that is smaller; int4 otherwise."""
        places = -(-self.kept * members // 8) * 8
        if places >= CHUNK:
            return Int4()
        mean = _Mean(places)
        return mean if mean.payload_bytes(CHUNK) < Int4().payload_bytes(CHUNK) else Int4()

    def _coded(self, kept: Floats) -> tuple[Floats, Payload]:
        magnitudes = np.abs(kept)
        large = magnitudes > magnitudes.mean(axis=1, keepdims=True)
        count = large.sum(axis=1)
        high = np.where(large, magnitudes, 0).sum(axis=1) / np.maximum(count, 1)
        low = np.where(large, 0, magnitudes).sum(axis=1) / np.maximum(self.kept - count, 1)
        return np.stack([low, high], axis=1).astype(np.float32), _packed(large + 2 * (kept < 0), 2)

    def _valued(self, scales: Floats, codes: Payload) -> Floats:
        numbers = _unpacked(codes, 2, self.kept)
        values = np.take_along_axis(scales, numbers & 1, axis=1)
        return np.where(numbers & 2, -values, values)


class _Mean(_Sparse):
    """The mean of top-k vectors: 8 bits per value. |error| of a value <= 0.004 times the chunk's largest magnitude."""

    scales = 1
    bits = 8
    kernel = Format.TOPK8

    def _coded(self, kept: Floats) -> tuple[Floats, Payload]:
        peaks = np.abs(kept).max(axis=1, keepdims=True)
        factors = inverse(decode_scales(encode_scales(peaks)), TOP)
        return peaks, np.rint(kept * factors).astype(np.int8).view(np.uint8)

    def _valued(self, scales: Floats, codes: Payload) -> Floats:
        return codes.view(np.int8) * (scales / np.float32(TOP))


def _largest(chunks: Floats, kept: int) -> Places:
    """The places of the `kept` largest magnitudes of each row, ascending; of equal ones the first are kept.

    Selected by value: the choice of argpartition among equal values depends on the machine.
    """
    magnitudes = np.abs(chunks)
    least = np.partition(magnitudes, CHUNK - kept, axis=1)[:, CHUNK - kept, None]
    chosen = magnitudes >= least
    crowded = np.flatnonzero(chosen.sum(axis=1) > kept)
    if crowded.size:
        equal = magnitudes[crowded] == least[crowded]
        above = chosen[crowded] & ~equal
        room = kept - above.sum(axis=1, keepdims=True)
        chosen[crowded] = above | (equal & (np.cumsum(equal, axis=1, dtype=np.int32) <= room))
    return np.nonzero(chosen)[1].reshape(-1, kept)


def _packed(numbers: NDArray[np.int64], bits: int) -> Payload:
    """The lowest `bits` of each number of a row, one after another."""
    shifts = np.arange(bits - 1, -1, -1)
    return np.packbits((numbers[:, :, None] >> shifts & 1).astype(np.uint8).reshape(len(numbers), -1), axis=1)


def _unpacked(packed: Payload, bits: int, count: int) -> NDArray[np.int64]:
    """The reverse of `_packed`."""
    each = np.unpackbits(packed, axis=1, count=count * bits).reshape(len(packed), count, bits)
    return each @ (1 << np.arange(bits - 1, -1, -1))
