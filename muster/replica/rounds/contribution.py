"""What one process contributes to a round, and the checks that decide whether it counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from muster.contract.run.commit import HOME, Commit, Member
from muster.replica.algorithms.algorithm import norm_of, square_of
from muster.replica.parts.link import by_first, each
from muster.replica.replica_errors import FencedError
from muster.replica.rounds.claims import Claim, is_superseded
from muster.replica.rounds.commit_store import read_commit
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.rounds.update_sample import UpdateSample, sampled
from muster.replica.statistics.statistics import Notes
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    HEADER_TEXT_BYTES_MAX,
    CodecError,
    Encoding,
    Floats,
    Records,
    checksums_digest,
    decode_header,
    encode_records,
    encoded_pieces,
    object_bytes,
    put_header,
)
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.headers import ContributionHeader, PartHeader
from muster.replica.wire.stream_decoder import READ_TRIES


@dataclass(frozen=True)
class Contribution:
    """A pseudo-gradient as it was encoded.

    Attributes:
        body: the object that makes the contribution whole, with its header: all of it, or the header alone if the
            processes of the replica have stored their parts.
        which: the blocks that this process has encoded.
        values: those of `which`, as every reader decodes them.
        seconds: for which each process of the replica has worked on it, by rank in the group; () if not known.
        sample: of `values`, before the round's mean takes their place; None if nothing is measured.
    """

    round: int
    key: str
    body: memoryview
    header: ContributionHeader
    which: range
    values: Floats
    seconds: tuple[float, ...] = ()
    sample: UpdateSample | None = None


@dataclass(frozen=True)
class Unusable:
    """Why a contribution does not count."""

    reason: str
    is_damaged: bool = False
    """Whether the object is not what its sender has stored, which the sender does not know."""


@dataclass(frozen=True)
class Received:
    """A contribution as others judge it, when it arrived (seconds since 1970 by the store's clock), the digest of the
    parameters that it starts from, and why the round is made without it if that is possible."""

    answer: Member | Unusable
    at: float
    state: str | None = None
    suspect: str | None = None


@dataclass(frozen=True)
class _Encoded:
    """What one process of the replica has encoded; the reason if its values cannot be averaged.

    Attributes:
        square: of the values by which the contribution is judged, without statistics; None: not known.
        sent: the square of those that were sent, if they are others.
    """

    checksums: bytes
    weight: float
    notes: Notes
    declined: str | None = None
    square: float | None = None
    sent: float | None = None
    seconds: float | None = None


def look(context: RoundContext, claim: Claim, round_: int) -> Commit | None:
    """The round's commit; if there is none, this process may contribute.

    Raises:
        FencedError: a newer process holds the rank.
    """

    def found() -> Commit | None:
        commit, superseded = context.both(
            lambda: read_commit(context, round_),
            lambda: is_superseded(context.store, claim.rank, claim.epoch),
        )
        if commit is None and superseded:
            raise FencedError(claim.rank, claim.attempt, claim.incarnation)
        return commit

    return by_first(context.link, found)


def make_contribution(
    context: RoundContext, claim: Claim, round_: int, update: LocalUpdate, notes: Notes
) -> Contribution:
    """Encode a pseudo-gradient. If its values cannot be averaged the object is a header alone, which says why.

    Each process of a replica with several encodes the blocks that it holds, and stores them as its part; so does that
    of a replica that trains elsewhere than at home. No process looks for it before the contribution's own object is
    there. The contribution has the sum of their weights, and the notes of the first one.

    The body of a single process lies in one of the context's buffers and is valid until the next contribution is made.
    The residual, if any, is added before encoding and holds the codec's error afterwards; it is as before if the values
    are not sent.
    """
    link = context.link
    is_apart = link.size > 1 or context.place != HOME
    key = rendezvous_keys.contribution(round_, claim.rank, claim.epoch)
    count = update.gradient.size if update.count is None else update.count
    blocks = Blocks(count, context.codec, update.exact)
    records = Records(key, blocks, blocks.shard(link.rank, link.size))
    body, sample = memoryview(bytearray(HEADER_BYTES)), None
    values = update.gradient[: update.gradient.size - blocks.exact_in(blocks.span(records.which))]

    def encoded() -> _Encoded:
        nonlocal body, sample
        given = sampled(values) if update.measured else None
        # The longer a replica has trained, the more of earlier rounds is in what a sparse codec sends.
        is_sparse = context.codec.needs_feedback
        before = square_of(values) if context.outlier_factor and is_sparse else None
        if update.residual is not None:
            update.residual.lend()
        try:
            if not is_apart:
                body, checksums = _encode(context, records, update)
            else:
                part = PartHeader(
                    run=context.run,
                    round=round_,
                    rank=claim.rank,
                    part=link.rank,
                    parts=link.size,
                    codec=context.codec.label,
                )
                checksums = _store_part(context, records, update, part)
        except CodecError as error:
            return _Encoded(b"", update.weight, notes, f"its pseudo-gradient cannot be averaged: {error}")
        square = sent = None
        if given is not None:
            residual = None if update.residual is None else update.residual.values[: values.size]
            sample = UpdateSample.of(given, values, residual, update.norm)
            square, sent = (sample.sums.given, sample.sums.sent) if is_sparse else (sample.sums.sent, None)
        if context.outlier_factor:
            # Of other codecs that of what is sent, which may have more of a residual than of the pseudo-gradient.
            square = before if is_sparse else square_of(values)
        return _Encoded(checksums, update.weight, notes, square=square, sent=sent, seconds=update.seconds)

    answers = each(link, encoded)
    declined = _reason_to_decline(answers)
    if declined is not None:
        body, sample = memoryview(bytearray(HEADER_BYTES)), None
        if update.residual is not None:
            update.residual.take_back()
    header = ContributionHeader(
        run=context.run,
        round=round_,
        count=blocks.count,
        exact=blocks.exact,
        codec=context.codec.label,
        declined=declined,
        state=update.state,
        suspect=update.suspect,
        member=_member(context, claim, update, answers, counts=declined is None),
    )
    if len(header.to_json()) > HEADER_TEXT_BYTES_MAX:
        # What it has trained and why it may not count decide about the round. Metrics do not.
        log.warning("round=%d event=metrics-left-out reason='the header has no room for them'", round_)
        member = header.member.model_copy(update={"metrics": {}, "logged": ()})
        header = header.model_copy(update={"member": member})
    put_header(body, header)
    return Contribution(round_, key, body, header, records.which, update.gradient, _seconds(answers), sample)


def _encode(context: RoundContext, records: Records, update: LocalUpdate) -> tuple[memoryview, bytes]:
    """The contribution of a single process, behind room for a header, and the checksums of its blocks."""
    room = partial(context.buffers.take, "contribution")
    return encode_records(records, update.gradient, replace(_encoding(context, update), room=room))


def _store_part(context: RoundContext, records: Records, update: LocalUpdate, header: PartHeader) -> bytes:
    """Store this process's part while it is encoded; the checksums of its blocks."""
    if not records.which:
        return b""
    start = memoryview(bytearray(HEADER_BYTES))
    put_header(start, header)
    # An earlier try of this process wrote the same bytes.
    size = HEADER_BYTES + len(records.which) * records.blocks.record_bytes
    writer = context.values.writer(rendezvous_keys.contribution_part(records.key, header.part), size)
    try:
        writer.write(start)
        checksums = []
        for piece, found in encoded_pieces(records, update.gradient, _encoding(context, update)):
            writer.write(piece)
            checksums.append(found)
    except BaseException:
        writer.discard()
        raise
    writer.close()
    return b"".join(checksums)


def _encoding(context: RoundContext, update: LocalUpdate) -> Encoding:
    """The residual is added, and receives the error; the pseudo-gradient's memory receives what was sent of it."""
    codec, residual = context.codec, None if update.residual is None else update.residual.values
    return Encoding(codec, added=residual, error=residual, decoded=update.gradient if codec.loses else None)


def _reason_to_decline(answers: Sequence[_Encoded]) -> str | None:
    """Why the replica's values cannot be averaged; None if they can."""
    declined = next((answer.declined for answer in answers if answer.declined), None)
    if declined is None and not any(answer.weight for answer in answers):
        return "its trainer counted no samples in this round"
    return declined


def _seconds(answers: Sequence[_Encoded]) -> tuple[float, ...]:
    """The seconds of each process, if they are known of all."""
    known = tuple(round(answer.seconds, 6) for answer in answers if answer.seconds is not None)
    return known if len(known) == len(answers) else ()


def _norm(squares: Sequence[float | None]) -> float | None:
    """The norm of which each process of the replica knows a square; None if it is not known."""
    known = [square for square in squares if square is not None]
    return norm_of(known) if len(known) == len(squares) else None


def _member(
    context: RoundContext, claim: Claim, update: LocalUpdate, answers: Sequence[_Encoded], *, counts: bool
) -> Member:
    return Member(
        rank=claim.rank,
        attempt=claim.attempt,
        incarnation=claim.incarnation,
        epoch=claim.epoch,
        weight=math.fsum(answer.weight for answer in answers) or 1.0,  # 0 is declined, and no weight of a member
        checksum=checksums_digest([answer.checksums for answer in answers] if counts else []),
        metrics=answers[0].notes.metrics,
        logged=answers[0].notes.logged,
        time=answers[0].notes.time,
        resumed=answers[0].notes.resumed,
        parts=context.link.size if counts and context.link.size > 1 else None,
        norm=_norm([answer.square for answer in answers]) if update.norm is None else update.norm,
        sent=_norm([answer.sent for answer in answers]),
        seconds=max(_seconds(answers), default=None),  # the others wait for the slowest one
        leaves=update.leaves,
        data=update.data,
        place=context.place,
    )


def contribute(context: RoundContext, contribution: Contribution) -> None:
    """Store the object that makes a contribution whole. Its parts, if it has any, are stored."""
    by_first(context.link, lambda: _contribute(context, contribution))


def _contribute(context: RoundContext, contribution: Contribution) -> None:
    try:
        context.store.upload(contribution.key, contribution.body)
    except ObjectExistsError:
        # Only this process writes under its epoch: an earlier try succeeded although its answer was lost.
        log.info("round=%d event=contribution-was-there", contribution.round)


def read_contribution(context: RoundContext, round_: int, rank: int, epoch: int, blocks: Blocks) -> Received | None:
    """One process's contribution, judged by its header and length; None if there is none yet.

    `blocks`: those that the run cuts the round's pseudo-gradients into.

    The members that average the values judge those. A header that may have been damaged in transit is read again.
    """
    key = rendezvous_keys.contribution(round_, rank, epoch)
    for left in reversed(range(READ_TRIES)):
        try:
            part = context.store.read(key, 0, HEADER_BYTES)
        except ObjectMissingError:
            return None
        try:
            header = decode_header(key, part.body, ContributionHeader)
        except CodecError as error:
            if not left:
                return Received(Unusable(str(error), is_damaged=True), part.created_at)
        else:
            break
    member = header.member
    if (header.run, header.round, member.rank, member.epoch) != (context.run, round_, rank, epoch):
        return Received(Unusable("its header belongs to another run, round or rank"), part.created_at)
    answer = judge(header, part.size, blocks)
    return Received(answer, part.created_at, header.state, header.suspect)


def judge(header: ContributionHeader, size: int, blocks: Blocks) -> Member | Unusable:
    """Whether a contribution, an object of `size` bytes, counts in a round that is cut into `blocks`."""
    count, codec = blocks.count, blocks.codec
    if header.declined is not None:
        return Unusable(header.declined)
    if header.count != count:
        return Unusable(f"it has {header.count} parameters, but the run has {count}")
    if header.exact != blocks.exact:
        return Unusable(f"it has {header.exact} statistics, but the run has {blocks.exact}")
    if header.codec != codec.label:
        return Unusable(f"it is encoded as {header.codec}, but the run uses {codec.label}")
    needed = object_bytes(count, codec, blocks.exact) if header.member.objects is None else HEADER_BYTES
    if size != needed:
        return Unusable(f"it has {size} bytes, but {count} parameters need {needed}")
    return header.member
