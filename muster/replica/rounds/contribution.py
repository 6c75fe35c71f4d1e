"""What one process gives to a round, and how others judge it before it may count."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from muster.contract.run.commit import Member
from muster.replica.codecs.base import Codec
from muster.replica.rounds.claims import Seat, check_seat
from muster.replica.rounds.round_context import Meeting, log
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    CodecError,
    Floats,
    decode_header,
    encode,
    object_bytes,
)
from muster.replica.wire.headers import ContributionHeader


@dataclass(frozen=True)
class Contribution:
    """An encoded pseudo-gradient with the sender's own account of it."""

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
    """What a process gave, as others judge it, and when it came (seconds since 1970 by the store's clock)."""

    answer: Member | Unusable
    at: float


def make_contribution(
    meeting: Meeting,
    seat: Seat,
    round_: int,
    gradient: Floats,
    *,
    weight: float,
    metrics: dict[str, float],
    residual: Floats | None = None,
) -> Contribution:
    """Encode a pseudo-gradient. Values that nobody could average are left out, and the header says so.

    Its body lies in a buffer of the meeting's: the next one takes its place.

    Args:
        residual: what is owed from before, of the same elements; holds afterwards what the codec lost of both (see
            `ErrorFeedback`), nothing if all values are left out.
    """
    codec = meeting.codec
    owed = gradient if residual is None else np.add(gradient, residual, out=residual)
    key = keys.contribution(round_, seat.rank, seat.epoch)

    def header(checksum: str, declined: str | None = None) -> ContributionHeader:
        return ContributionHeader(
            run=meeting.run,
            round=round_,
            count=owed.size,
            codec=codec.label,
            declined=declined,
            member=Member(
                rank=seat.rank,
                attempt=seat.attempt,
                incarnation=seat.incarnation,
                epoch=seat.epoch,
                weight=weight,
                checksum=checksum,
                metrics=metrics,
            ),
        )

    try:
        body = encode(key, owed, header, codec, error=residual, room=partial(meeting.buffers.take, "contribution"))
    except CodecError as error:
        reason = f"its pseudo-gradient cannot be averaged: {error}"
        if residual is not None:
            residual[...] = 0
        body = encode(key, None, lambda checksum: header(checksum, reason))
    return Contribution(round_, key, body, decode_header(key, body, ContributionHeader))


def contribute(meeting: Meeting, seat: Seat, contribution: Contribution) -> None:
    """Store a contribution.

    Raises:
        FencedError: a newer process carries the rank.
    """
    check_seat(meeting.store, seat)
    try:
        meeting.store.upload(contribution.key, contribution.body)
    except ObjectExistsError:
        # Only this process writes under its epoch: an earlier try went through although its answer was lost.
        log.info("round=%d event=contribution-was-there", contribution.round)


def read_contribution(meeting: Meeting, round_: int, rank: int, epoch: int, *, count: int) -> Received | None:
    """What a process gave, judged by its header and length; None while there is nothing.

    The values themselves are judged by those who average them.
    """
    key = keys.contribution(round_, rank, epoch)
    try:
        part = meeting.store.read(key, 0, HEADER_BYTES)
    except ObjectMissingError:
        return None
    try:
        header = decode_header(key, part.body, ContributionHeader)
    except CodecError as error:
        return Received(Unusable(str(error)), part.created_at)
    member = header.member
    if (header.run, header.round, member.rank, member.epoch) != (meeting.run, round_, rank, epoch):
        return Received(Unusable("its header belongs to another run, round or rank"), part.created_at)
    return Received(judge(header, part.size, count, meeting.codec), part.created_at)


def judge(header: ContributionHeader, size: int, count: int, codec: Codec) -> Member | Unusable:
    """Whether a contribution of `size` bytes can count in a run of `count` parameters, coded by `codec`."""
    if header.declined is not None:
        return Unusable(header.declined)
    if header.count != count:
        return Unusable(f"{header.count} parameters, where the run has {count}")
    if header.codec != codec.label:
        return Unusable(f"coded as {header.codec}, where the run has {codec.label}")
    if size != object_bytes(count, codec):
        return Unusable(f"{size} bytes, where {count} parameters take {object_bytes(count, codec)}")
    return header.member
