"""What a round tells of one replica's pseudo-gradient: its norm, how it agrees with the others', what the codec loses.

These are metrics: no state of the run depends on them. Of a large model they are estimated from a sample, which costs
neither a pass over the memory nor a copy of the values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.contract.run.commit import Commit
from muster.contract.run.round_values import CODEC_ERROR, RESIDUAL_SHARE, UPDATE_COSINE, UPDATE_NORM
from muster.replica.codecs.base import Floats
from muster.replica.parts.link import Link
from muster.replica.rounds.exchange import Exchange

Sampled = NDArray[np.float64]

# Takes 1 % of the time to encode 16M values; the cosine of independent values is found within 0.02 of 0.
SAMPLED_MAX = 2**15
_RUN_ELEMENTS = 256


class Sums(NamedTuple):
    """Sums of products over a pseudo-gradient, or a process's part of it, without statistics."""

    given: float
    """Its square, before it was encoded."""
    sent: float
    """The square of what every reader decodes."""
    encoded: float
    """The square of what was encoded: of a codec that loses something it has the residual in it."""
    lost: float
    """The square of the codec's error, which is the residual afterwards."""
    common: float = 0.0
    """The product of what was sent and the round's mean."""


@dataclass(frozen=True)
class UpdateSample:
    """What is measured of the part of a contribution that one process has encoded.

    Attributes:
        norm: that of the whole pseudo-gradient before all replicas' were scaled to one norm; None if they were not.
    """

    count: int
    sent: Sampled
    sums: Sums
    norm: float | None = None

    @classmethod
    def of(cls, given: Sampled, sent: Floats, residual: Floats | None, norm: float | None = None) -> UpdateSample:
        """The sample of a part.

        Args:
            given: `sampled` values before they were encoded.
            sent: all values as every reader decodes them.
            residual: the codec's error; None for a codec that loses nothing.
        """
        if residual is None:
            square = _product(given, given, sent.size)
            return cls(sent.size, given, Sums(square, square, square, 0.0), norm)
        after, error = sampled(sent), sampled(residual)
        pairs = ((given, given), (after, after), (after, error), (error, error))
        before, kept, both, lost = (_product(one, other, sent.size) for one, other in pairs)
        return cls(sent.size, after, Sums(before, kept, max(0.0, kept + 2 * both + lost), lost), norm)

    def metrics(self, exchange: Exchange, link: Link) -> dict[str, float]:
        """The metrics of the whole contribution in a committed round. All processes of the replica call it."""
        common = _product(self.sent, sampled(exchange.mean[: self.count]), self.count)
        sums = Sums(*map(math.fsum, zip(*link.gather(tuple(self.sums._replace(common=common))), strict=True)))
        cosine = _cosine(exchange, sums, are_scaled=self.norm is not None)
        found = {UPDATE_NORM: math.sqrt(sums.given) if self.norm is None else self.norm}
        if cosine is not None:
            found[UPDATE_COSINE] = cosine
        if sums.lost and sums.given and sums.encoded:
            found[CODEC_ERROR] = math.sqrt(sums.lost / sums.encoded)
            found[RESIDUAL_SHARE] = math.sqrt(sums.lost / sums.given)
        return found


def sampled(values: Floats) -> Sampled:
    """All values, or of many at most SAMPLED_MAX in evenly spread runs; a copy."""
    if values.size > SAMPLED_MAX:
        runs = values.size // _RUN_ELEMENTS
        # An odd step: one that divides a matrix's rows would find the same columns in each.
        step = -(-runs * _RUN_ELEMENTS // SAMPLED_MAX) | 1
        values = values[: runs * _RUN_ELEMENTS].reshape(runs, _RUN_ELEMENTS)[::step]
    return values.astype(np.float64).reshape(-1)


def pulls(commit: Commit, *, are_scaled: bool) -> dict[int, float]:
    """How far each member moves the mean, by rank: its weight times the norm of what it sent, as a share of all.

    {} where it is not known. `are_scaled`: all were scaled to one norm.
    """
    weight = sum(member.weight for member in commit.members)
    norms = {member.rank: 1.0 if are_scaled else member.sent_norm for member in commit.members}
    found = {one.rank: one.weight / weight * norm for one in commit.members if (norm := norms[one.rank]) is not None}
    all_ = math.fsum(found.values())
    if commit.void or len(found) < len(commit.members) or not all_:
        return {}
    return {rank: one / all_ for rank, one in found.items()}


def _product(one: Sampled, other: Sampled, count: int) -> float:
    """The sum of the products of all `count` values, from those of a sample."""
    # Not by BLAS, whose threads take longer to wake.
    return float(np.einsum("i,i->", one, other)) * count / max(1, one.size)


def _cosine(exchange: Exchange, sums: Sums, *, are_scaled: bool) -> float | None:
    """The cosine between what this replica and each other member have sent, on average; None if it is not known.

    The mean is Σ aⱼ, where aⱼ is what a member has sent times its share of the weight. Weighted by the norms,
    the average is aᵢ·Σ aⱼ / (|aᵢ| Σ |aⱼ|) over the others j, which the mean and their norms tell.
    """
    members, own = exchange.commit.members, exchange.share
    weight = sum(member.weight for member in members)
    others = [member for member in members if member.rank != exchange.rank]
    norm = math.sqrt(sums.sent)
    norms = [(member.weight / weight, norm if are_scaled else member.sent_norm) for member in others]
    length = norm * math.fsum(share * one for share, one in norms if one is not None)
    if exchange.commit.void or any(one is None for _, one in norms) or not length:
        return None
    return max(-1.0, min(1.0, (sums.common - own * sums.sent) / length))
