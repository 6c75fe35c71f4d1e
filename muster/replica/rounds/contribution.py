"""What one process contributes to a round, and the checks that decide whether it counts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from muster.contract.run.commit import Member
from muster.replica.codecs.base import Codec
from muster.replica.rounds.claims import Claim, check_claim
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    CodecError,
    Encoding,
    decode_header,
    encode,
    object_bytes,
)
from muster.replica.wire.headers import ContributionHeader
from muster.replica.wire.stream_decoder import READ_TRIES


@dataclass(frozen=True)
class Contribution:
    """An encoded pseudo-gradient and its header."""

    round: int
    key: str
    body: memoryview
    header: ContributionHeader


@dataclass(frozen=True)
class Unusable:
    """Why a contribution does not count."""

    reason: str


@dataclass(frozen=True)
class Received:
    """A contribution as others judge it, and when it arrived (seconds since 1970 by the store's clock)."""

    answer: Member | Unusable
    at: float


def make_contribution(
    context: RoundContext, claim: Claim, round_: int, update: LocalUpdate, metrics: dict[str, float]
) -> Contribution:
    """Encode a pseudo-gradient. If its values cannot be averaged the object is a header alone, which says why.

    The body lies in one of the context's buffers and is valid until the next contribution is made. The residual, if
    any, is added before encoding and holds the codec's error afterwards (zeros if the values are not sent).
    """
    codec, residual = context.codec, update.residual
    values = update.gradient if residual is None else np.add(update.gradient, residual, out=residual)
    key = keys.contribution(round_, claim.rank, claim.epoch)

    def header(checksum: str, declined: str | None = None) -> ContributionHeader:
        return ContributionHeader(
            run=context.run,
            round=round_,
            count=values.size,
            codec=codec.label,
            declined=declined,
            member=Member(
                rank=claim.rank,
                attempt=claim.attempt,
                incarnation=claim.incarnation,
                epoch=claim.epoch,
                weight=update.weight,
                checksum=checksum,
                metrics=metrics,
            ),
        )

    encoding = Encoding(codec, error=residual, room=partial(context.buffers.take, "contribution"))
    try:
        body = encode(key, values, header, encoding)
    except CodecError as error:
        reason = f"its pseudo-gradient cannot be averaged: {error}"
        if residual is not None:
            residual[...] = 0
        body = encode(key, None, lambda checksum: header(checksum, reason))
    return Contribution(round_, key, body, decode_header(key, body, ContributionHeader))


def contribute(context: RoundContext, claim: Claim, contribution: Contribution) -> None:
    """Store a contribution.

    Raises:
        FencedError: a newer process holds the rank.
    """
    check_claim(context.store, claim)
    try:
        context.store.upload(contribution.key, contribution.body)
    except ObjectExistsError:
        # Only this process writes under its epoch: an earlier try succeeded although its answer was lost.
        log.info("round=%d event=contribution-was-there", contribution.round)


def read_contribution(context: RoundContext, round_: int, rank: int, epoch: int, *, count: int) -> Received | None:
    """One process's contribution, judged by its header and length; None if there is none yet.

    The members that average the values judge those. A header that may have been damaged in transit is read again.
    """
    key = keys.contribution(round_, rank, epoch)
    for left in reversed(range(READ_TRIES)):
        try:
            part = context.store.read(key, 0, HEADER_BYTES)
        except ObjectMissingError:
            return None
        try:
            header = decode_header(key, part.body, ContributionHeader)
        except CodecError as error:
            if not left:
                return Received(Unusable(str(error)), part.created_at)
        else:
            break
    member = header.member
    if (header.run, header.round, member.rank, member.epoch) != (context.run, round_, rank, epoch):
        return Received(Unusable("its header belongs to another run, round or rank"), part.created_at)
    return Received(judge(header, part.size, count, context.codec), part.created_at)


def judge(header: ContributionHeader, size: int, count: int, codec: Codec) -> Member | Unusable:
    """Whether a contribution of `size` bytes can count in a run of `count` parameters, encoded by `codec`."""
    if header.declined is not None:
        return Unusable(header.declined)
    if header.count != count:
        return Unusable(f"it has {header.count} parameters, but the run has {count}")
    if header.codec != codec.label:
        return Unusable(f"it is encoded as {header.codec}, but the run uses {codec.label}")
    if size != object_bytes(count, codec):
        return Unusable(f"it has {size} bytes, but {count} parameters need {object_bytes(count, codec)}")
    return header.member
