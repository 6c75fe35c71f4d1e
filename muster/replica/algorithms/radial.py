"""Averages of norms and directions apart (RDA, arXiv 2604.21428). Pure.

A mean of vectors that point in different directions is shorter than each of them, and a vector that is longer than the
others turns it. Here every replica sends its pseudo-gradient with one and the same norm, and says which it had. The
mean of these directions gets the weighted mean of the norms.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from muster.contract.run.commit import Member
from muster.replica.algorithms.algorithm import norm_of
from muster.replica.parts.link import Link
from muster.replica.wire.binary_format import Floats


def straighten(gradient: Floats, norm: float, count: int) -> None:
    """Scale a part of a pseudo-gradient of `count` elements and the norm `norm` in place: to values around 1."""
    if norm:
        gradient *= np.float32(math.sqrt(count) / norm)


def mean_norm(members: Iterable[Member]) -> float:
    """The weighted mean of the norms that the members had; 0 if none names one."""
    known = [(member.weight, member.norm) for member in members if member.norm is not None]
    total = math.fsum(weight for weight, _ in known)
    return math.fsum(weight * norm for weight, norm in known) / total if total else 0.0


def norm_of_all(link: Link, values: Floats, elements: int) -> float:
    """The norm of what all processes of a replica hold, in whole blocks of `elements`; all of them call this."""
    own = list(block_squares(values, elements))
    return norm_of(chain.from_iterable(link.gather(own)))


def block_squares(values: Floats, elements: int) -> Iterator[float]:
    """The sum of the squares of each block of `elements`, the same bits on any machine.

    Element by element, and halves added to each other: no order is left to a library. Their exact sum does not depend
    on how the blocks are dealt to processes.
    """
    for start in range(0, values.size, elements):
        squares = np.square(values[start : start + elements], dtype=np.float64)
        while squares.size > 1:
            half = (squares.size + 1) // 2
            squares[: squares.size - half] += squares[half:]
            squares = squares[:half]
        yield float(squares[0])
