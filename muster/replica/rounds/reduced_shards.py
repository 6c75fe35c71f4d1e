"""The shards of one round's mean: each computed from all contributions, stored once, and read by every replica."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import chain

import numpy as np

from muster.contract.run.commit import Commit, Exclusion, Member
from muster.replica.codecs.base import Codec
from muster.replica.errors import RendezvousError, RoundGoneError
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.own_records import OwnRecords, Records
from muster.replica.rounds.round_context import CONNECTIONS, RoundContext, log
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    CodecError,
    Encoding,
    Floats,
    byte_range,
    decode_blocks,
    decode_header,
    decode_into,
    encode,
    object_bytes,
)
from muster.replica.wire.blocks import PIECE_ELEMENTS, Blocks
from muster.replica.wire.headers import ReducedHeader, roster_digest
from muster.replica.wire.stream_decoder import READ_TRIES, ByteStream, RecordReader, decode_stream

# What fits into a shard's header; the next revision rejects further members.
REJECTED_MAX = 8
REASON_CHARACTERS = 200


class Rejection(Exception):  # noqa: N818 - an answer, not an error
    """The shard cannot be made: these members' data are unusable."""

    def __init__(self, rejected: tuple[Exclusion, ...]) -> None:
        self.rejected = rejected
        super().__init__(str(rejected))


class Look(Enum):
    """What a look at a stored shard found."""

    READ = "read"
    MISSING = "missing"
    DAMAGED = "damaged"


def shards_of(commit: Commit, codec: Codec, members: int) -> int:
    """The number of shards of the mean of so many members whose contributions have as many parts as the commit's.

    The bits of the mean must not depend on the parts, so they count only for codecs that encode each value by itself.
    """
    parts = max(member.parts or 1 for member in commit.members) if codec.elementwise else 1
    return Blocks(commit.count, codec).shards(members * parts)


def most_shards(commit: Commit, codec: Codec, replicas: int) -> int:
    """The most shards that such a mean may have, whichever of `replicas` take part: fewer members may need more."""
    return max(shards_of(commit, codec, members) for members in range(1, replicas + 1))


@dataclass(frozen=True)
class _Source:
    member: Member
    records: Records


class ReducedShards:
    """The shards of one revision of one round."""

    def __init__(self, context: RoundContext, commit: Commit) -> None:
        self._context = context
        self._commit = commit
        self._blocks = Blocks(commit.count, context.codec)
        self._codec = context.codec.for_mean(len(commit.members))
        self._roster = roster_digest(commit)
        self.number = shards_of(commit, context.codec, len(commit.members))

    def span(self, shard: int) -> slice:
        """The elements of a shard."""
        return self._blocks.span(self._which(shard))

    def held_by(self, rank: int, size: int) -> slice:
        """The elements that process `rank` of `size` of a replica holds."""
        return self._blocks.span(self._blocks.shard(rank, size))

    def maker(self, shard: int, size: int) -> int:
        """Which of a replica's `size` processes makes a shard of it: the one that holds its first element."""
        first = self._which(shard).start
        return max(rank for rank in range(size) if self._blocks.shard(rank, size).start <= first)

    def exists(self, shard: int) -> bool:
        """Whether a shard is stored."""
        return self._context.store.exists(self._key(shard))

    def make(self, shard: int, values: Floats, mine: Contribution | None) -> None:
        """Compute a shard into `values` and store it. If another member was faster, its object counts.

        Args:
            mine: this process's own contribution, which then need not be read: its values may lie where `values` do.
                None if it made none, or if something else lies there by now.

        Raises:
            Rejection: members' data are unusable.
            RoundGoneError: the contributions are deleted.
        """
        rejected: tuple[Exclusion, ...] = ()
        try:
            self._compute(shard, values, mine)
        except Rejection as answer:
            rejected = answer.rejected
        try:
            self._context.store.create(self._key(shard), self._encode(shard, None if rejected else values, rejected))
        except ObjectExistsError:
            found = self.read(shard, values)
            if found is Look.DAMAGED:
                self.repair(shard, values)
            if found is not Look.MISSING:
                return
        if rejected:
            raise Rejection(rejected)

    def read(self, shard: int, values: Floats, within: slice | None = None) -> Look:
        """Fill in a stored shard, or its elements `within`. One that may have been damaged in transit is read again.

        Raises:
            Rejection: the shard states that members' data are unusable.
        """
        for _ in range(READ_TRIES):
            try:
                if within is None:
                    self._read(shard, values)
                else:
                    self._read_within(shard, values, within)
            except ObjectMissingError:
                return Look.MISSING
            except CodecError as error:
                log.warning("round=%d event=damaged-shard shard=%d reason=%r", self._commit.round, shard, str(error))
            else:
                return Look.READ
        return Look.DAMAGED

    def repair(self, shard: int, values: Floats) -> None:
        """Compute a shard again that is damaged in the bucket: the bytes are the same.

        Not for the context's threads: it waits for requests that run in them.

        Raises:
            Rejection: members' data are unusable, as the damaged object stated.
            RoundGoneError: the contributions are deleted.
            RendezvousError: it cannot be computed again. Others may have applied it, so the round keeps its members.
        """
        try:
            self._compute(shard, values, None)
        except Rejection as answer:
            if self._is_statement(shard):
                raise
            reasons = "; ".join(f"rank {item.rank}: {item.reason}" for item in answer.rejected)
            uri = self._context.store.uri(self._key(shard))
            message = f"{uri} is damaged, and so are contributions from which it was computed ({reasons})."
            raise RendezvousError(message) from None
        self._encode(shard, values)

    def _is_statement(self, shard: int) -> bool:
        """Whether the stored object has no values: it says that the shard cannot be made."""
        try:
            return self._context.store.read(self._key(shard), 0, 1).size <= HEADER_BYTES
        except ObjectMissingError:
            raise RoundGoneError(self._commit.round) from None

    def _read(self, shard: int, values: Floats) -> None:
        key = self._key(shard)
        blocks = Blocks(values.size, self._codec)
        # Request one byte more than the object can have, to detect one that is too long.
        stream = ByteStream(self._context.store.stream(key, 0, object_bytes(values.size, self._codec) + 1))
        self._check(decode_header(key, stream.take(HEADER_BYTES), ReducedHeader), shard)
        decode_stream(values, key, stream, blocks, range(blocks.number))

    def _read_within(self, shard: int, values: Floats, within: slice) -> None:
        key = self._key(shard)
        span = self.span(shard)
        blocks = Blocks(span.stop - span.start, self._codec)
        found = self._context.store.read(key, 0, HEADER_BYTES)
        self._check(decode_header(key, found.body, ReducedHeader), shard)
        if found.size != object_bytes(blocks.count, self._codec):
            message = f"it has {found.size} bytes, {object_bytes(blocks.count, self._codec)} are expected"
            raise CodecError(message)
        which = blocks.covering(within)
        body = self._context.store.read(key, *byte_range(blocks, which)).body
        start = blocks.span(which).start
        values[...] = decode_blocks(key, body, blocks, which)[within.start - start : within.stop - start]

    def _which(self, shard: int) -> range:
        return self._blocks.shard(shard, self.number)

    def _key(self, shard: int) -> str:
        return keys.reduced(self._commit.round, self._commit.revision, shard)

    def _encode(self, shard: int, values: Floats | None, rejected: tuple[Exclusion, ...] = ()) -> memoryview:
        """The object of a shard. `values` become what every replica decodes from it."""

        def header(_: str) -> ReducedHeader:
            return ReducedHeader(
                run=self._commit.run,
                round=self._commit.round,
                revision=self._commit.revision,
                shard=shard,
                codec=self._codec.label,
                roster=self._roster,
                rejected=rejected,
            )

        key = self._key(shard)
        body = encode(key, values, header, Encoding(self._codec, dither=True))
        if values is not None and self._codec.loses:
            blocks = Blocks(values.size, self._codec)
            decode_into(values, key, body[HEADER_BYTES:], blocks, range(blocks.number))
        return body

    def _compute(self, shard: int, mean: Floats, mine: Contribution | None) -> None:
        """The weighted mean of a shard, members in the commit's order: any process computes the same bytes."""
        rejected: list[Exclusion] = []
        members = self._commit.members
        if mine is not None and len(members) > CONNECTIONS:
            # The sum of the members before would take the place of its values.
            mine = replace(mine, values=mine.values.copy())
        for first in range(0, len(members), CONNECTIONS):
            batch = members[first : first + CONNECTIONS]
            rejected += self._add(self._sources(batch, self._which(shard), mine), shard, mean, held=first > 0)
        if rejected:
            raise Rejection(tuple(rejected[:REJECTED_MAX]))
        mean *= np.float32(1 / len(members))

    def _sources(self, members: Sequence[Member], which: range, mine: Contribution | None) -> list[_Source]:
        """Where the values of `members` in the blocks `which` come from."""
        return [
            _Source(member, self._reader(member, which))
            if mine is None or mine.key != self._key_of(member)
            else _Source(member, OwnRecords(mine, self._blocks, which, partial(self._reader, member)))
            for member in members
        ]

    def _add(self, sources: list[_Source], shard: int, mean: Floats, *, held: bool) -> list[Exclusion]:
        """Add the contributions of members to `mean`, a run of blocks at a time, so that each passes the cache once.

        Args:
            held: whether `mean` holds a sum already; otherwise the first member's values replace its content.
        """
        which = self._which(shard)
        offset = self.span(shard).start
        average = sum(member.weight for member in self._commit.members) / len(self._commit.members)
        try:
            self._context.side_by_side(lambda source: source.records.begin(), sources)
            rejected: list[Exclusion] = []
            room = np.empty(PIECE_ELEMENTS, np.float32)
            for run in self._blocks.pieces(which):
                span = self._blocks.span(run)
                target = mean[span.start - offset : span.stop - offset]
                summed = held
                for source in sources:
                    source.records.prepare(run)
                for source in tuple(sources):
                    values = room[: target.size] if summed else target
                    try:
                        source.records.decode(values, run)
                    except CodecError as error:
                        rejected.append(Exclusion(rank=source.member.rank, reason=str(error)[:REASON_CHARACTERS]))
                        sources.remove(source)
                    else:
                        # Most members have the average weight: nothing to multiply.
                        if source.member.weight != average:
                            values *= np.float32(source.member.weight / average)
                        if summed:
                            target += values
                        summed = True
        except ObjectMissingError:
            # A committed contribution did exist: its absence is not the sender's fault.
            raise RoundGoneError(self._commit.round) from None
        return rejected

    def _key_of(self, member: Member) -> str:
        return keys.contribution(self._commit.round, member.rank, member.epoch)

    def _reader(self, member: Member, which: range) -> RecordReader:
        """Reads a member's contribution to the blocks `which`, from one object or from its parts."""
        key = self._key_of(member)

        def open_at(rest: range) -> ByteStream:
            if member.parts is None:
                return ByteStream(self._stored(key, range(self._blocks.number), rest))
            parts = (self._blocks.shard(part, member.parts) for part in range(member.parts))
            return ByteStream(
                chain.from_iterable(
                    self._stored(keys.contribution_part(key, part), held, both)
                    for part, held in enumerate(parts)
                    if (both := range(max(held.start, rest.start), min(held.stop, rest.stop)))
                )
            )

        return RecordReader(key, open_at, self._blocks, which)

    def _stored(self, key: str, held: range, which: range) -> Iterator[memoryview]:
        """The records of `which` in the object `key`, which has those of `held`."""
        start, stop = byte_range(self._blocks, range(which.start - held.start, which.stop - held.start))
        return self._context.store.stream(key, start, stop)

    def _check(self, header: ReducedHeader, shard: int) -> None:
        found = (header.run, header.shard, header.roster, header.codec)
        if found != (self._commit.run, shard, self._roster, self._codec.label):
            message = "its header belongs to another run, shard, list of members or codec"
            raise CodecError(message)
        if header.rejected:
            raise Rejection(header.rejected)
