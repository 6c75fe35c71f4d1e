"""The shards of one round's mean: each computed from all contributions, stored once, and read by every replica."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from enum import Enum

from muster.contract.run.commit import Commit, Exclusion, Member
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import Codec, Payload
from muster.replica.free_memory import pages
from muster.replica.replica_errors import RendezvousError, RoundGoneError
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.rounds.weighted_mean import Rejection, WeightedMean, regrouped
from muster.replica.store.read_ahead import ByteRange
from muster.replica.store.transport import Creation, ObjectExistsError, ObjectMissingError
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    CodecError,
    Encoding,
    Floats,
    Records,
    byte_range,
    decode_header,
    encode,
    encode_into,
    object_bytes,
    put_header,
)
from muster.replica.wire.blocks import STREAM_BYTES, Blocks
from muster.replica.wire.headers import ReducedHeader, roster_digest
from muster.replica.wire.stream_decoder import READ_TRIES, ByteStream, decoded_stream

Sink = Callable[[slice, Floats], None]
"""Receives values of a shard: the elements, counted from the shard's start, and their values as `decoded` returns them,
valid until it returns.
"""


class Look(Enum):
    """What a look at a stored shard found."""

    READ = "read"
    MISSING = "missing"
    DAMAGED = "damaged"


def shards_of(commit: Commit, codec: Codec) -> int:
    """The number of shards of a commit's mean: what the commit says, or what rounds had before commits said it."""
    blocks = Blocks(commit.count, codec, commit.exact)
    if commit.shards is not None:
        return min(commit.shards, blocks.number)
    return blocks.shards(len(commit.members) * _parts(commit.members, codec))


def shards_for(blocks: Blocks, members: Sequence[Member], number: int | None = None) -> int:
    """The number of shards of a new mean.

    Args:
        blocks: of the contributions.
        members: the round's; where `number` is given, others whose contributions have as many parts as theirs.
        number: of members.
    """
    return blocks.shards_of_mean((number or len(members)) * _parts(members, blocks.codec))


def most_shards(commit: Commit, codec: Codec, replicas: int) -> int:
    """The most shards that such a mean may have, whichever of `replicas` take part: fewer members may need more."""
    numbers, blocks = range(1, replicas + 1), Blocks(commit.count, codec, commit.exact)
    most = max(shards_for(blocks, commit.members, number) for number in numbers)
    return max(most, shards_of(commit, codec))


def _parts(members: Sequence[Member], codec: Codec) -> int:
    """The objects that a contribution has. The bits of the mean must not depend on it, so it counts only for codecs
    that encode each value by itself.
    """
    return max(member.parts or 1 for member in members) if codec.elementwise else 1


class ReducedShards:
    """The shards of one revision of one round."""

    def __init__(self, context: RoundContext, commit: Commit) -> None:
        self._context = context
        self._commit = commit
        self._blocks = Blocks(commit.count, context.codec, commit.exact)
        self._codec = codec_named(commit.mean) if commit.mean else context.codec.for_mean(len(commit.members))
        self._roster = roster_digest(commit)
        self.store = context.store
        """Where the shards lie."""
        self.number = shards_of(commit, context.codec)

    def span(self, shard: int) -> slice:
        """The elements of a shard."""
        return self._blocks.span(self._which(shard))

    def held_by(self, rank: int, size: int) -> slice:
        """The elements that process `rank` of `size` of a replica holds."""
        return self._blocks.span(self._blocks.shard(rank, size))

    def ranges(self, rank: int, size: int) -> Iterator[ByteRange]:
        """What process `rank` of `size` of a replica that makes no shard asks the store for, besides single headers."""
        held = self.held_by(rank, size)
        for shard in range(self.number):
            span = self.span(shard)
            first, last = max(span.start, held.start), min(span.stop, held.stop)
            if first < last:
                yield self._range(shard, slice(first - span.start, last - span.start))

    def maker(self, shard: int, size: int) -> int:
        """Which of a replica's `size` processes makes a shard of it: the one that holds its first element."""
        first = self._which(shard).start
        return max(rank for rank in range(size) if self._blocks.shard(rank, size).start <= first)

    def make(self, shard: int, sink: Sink, mine: Contribution | None, room: Callable[[int], Payload] = pages) -> None:
        """Compute a shard and store it. If another member was faster, that one's object counts.

        Args:
            sink: receives the values, in order.
            mine: this process's own contribution, which then need not be read. None if it made none, or if its values
                are not in the memory any more. `sink` may put the values of the mean where they lie.
            room: allocates the object's memory, given its size.

        Raises:
            Rejection: members' data are unusable.
            RoundGoneError: the contributions are deleted.
        """
        key = self._key(shard)
        rejected: tuple[Exclusion, ...] = ()
        creation = self.store.creation(key, self._size(self._blocks_of(shard)))
        try:
            body = self._computed(shard, sink, mine, room, creation)
        except BaseException as error:
            if creation is not None:
                creation.discard()
            if not isinstance(error, Rejection):
                raise
            rejected, creation = error.rejected, None
            body = encode(key, None, lambda _: self._header(shard, rejected))
        try:
            if creation is None or not creation.finish():
                self.store.create(key, body)
        except ObjectExistsError:
            found = self.read(shard, sink)
            if found is Look.DAMAGED:
                self.repair(shard, sink)
            if found is not Look.MISSING:
                return
        else:
            self._stored_now(shard, body)
        if rejected:
            raise Rejection(rejected)

    def read(self, shard: int, sink: Sink, within: slice | None = None) -> Look:
        """Read a stored shard, or its elements `within`. One that may have been damaged in transit is read again.

        Args:
            sink: receives the values, and perhaps some beside those `within`.

        Raises:
            Rejection: the shard states that members' data are unusable.
        """
        for _ in range(READ_TRIES):
            try:
                self._read(shard, sink, within)
            except ObjectMissingError:
                return Look.MISSING
            except CodecError as error:
                log.warning("round=%d event=damaged-shard shard=%d reason=%r", self._commit.round, shard, str(error))
            else:
                return Look.READ
        return Look.DAMAGED

    def stored(self, shards: Sequence[int]) -> list[int]:
        """Those of `shards` that are stored."""
        listed = set(self.store.keys(rendezvous_keys.REDUCED, rendezvous_keys.reduced_of(self.number)))
        return [shard for shard in shards if self._key(shard) in listed]

    def is_stored(self, shard: int) -> bool:
        """Whether a shard, or the statement that it cannot be made, is stored."""
        return self.store.exists(self._key(shard))

    def repair(self, shard: int, sink: Sink) -> None:
        """Compute a shard again that is damaged in the bucket: the bytes are the same.

        Not for the context's threads: it waits for requests that run in them.

        Raises:
            Rejection: members' data are unusable, as the damaged object stated.
            RoundGoneError: the contributions are deleted.
            RendezvousError: it cannot be computed again. Others may have applied it, so the round keeps its members.
        """
        try:
            self._computed(shard, sink, None, pages)
        except Rejection as answer:
            if self._is_statement(shard):
                raise
            reasons = "; ".join(f"rank {item.rank}: {item.reason}" for item in answer.rejected)
            uri = self.store.uri(self._key(shard))
            message = f"{uri} is damaged, and so are contributions from which it was computed ({reasons})."
            raise RendezvousError(message) from None

    def _is_statement(self, shard: int) -> bool:
        """Whether the stored object has no values: it says that the shard cannot be made."""
        try:
            return self.store.read(self._key(shard), 0, 1).size <= HEADER_BYTES
        except ObjectMissingError:
            raise RoundGoneError(self._commit.round) from None

    def _read(self, shard: int, sink: Sink, within: slice | None) -> None:
        key, blocks, wanted = self._key(shard), self._blocks_of(shard), self._range(shard, within)
        which = range(blocks.number) if within is None else blocks.covering(within)
        size = blocks.stream_bytes
        sizes = (size if wanted.start else HEADER_BYTES, size)
        with closing(ByteStream(self._stream(wanted, sizes))) as stream:
            if wanted.start == 0:
                self._check(decode_header(key, stream.take(HEADER_BYTES), ReducedHeader), shard)
            else:
                found = self.store.read(key, 0, HEADER_BYTES)
                self._check(decode_header(key, found.body, ReducedHeader), shard)
                if found.size != self._size(blocks):
                    message = f"it has {found.size} bytes, {self._size(blocks)} are expected"
                    raise CodecError(message)
            for run, values in decoded_stream(key, stream, blocks, which):
                sink(blocks.span(run), values)

    def _stream(self, wanted: ByteRange, sizes: tuple[int, int]) -> Iterator[memoryview]:
        return self._context.stream(wanted, sizes)

    def _range(self, shard: int, within: slice | None) -> ByteRange:
        """The bytes of a shard's elements `within`; of all its elements with the header."""
        blocks = self._blocks_of(shard)
        if within is None or within == slice(0, blocks.count):
            # One byte more than the object can have, to detect one that is too long.
            return ByteRange(self._key(shard), 0, self._size(blocks) + 1)
        return ByteRange(self._key(shard), *byte_range(blocks, blocks.covering(within)))

    def _blocks_of(self, shard: int) -> Blocks:
        span = self.span(shard)
        return Blocks(span.stop - span.start, self._codec, self._blocks.exact_in(span))

    @staticmethod
    def _size(blocks: Blocks) -> int:
        return object_bytes(blocks.count, blocks.codec, blocks.exact)

    def _which(self, shard: int) -> range:
        return self._blocks.shard(shard, self.number)

    def _key(self, shard: int) -> str:
        return rendezvous_keys.reduced(self._commit.round, self._commit.revision, shard)

    def _computed(
        self,
        shard: int,
        sink: Sink,
        mine: Contribution | None,
        room: Callable[[int], Payload],
        creation: Creation | None = None,
    ) -> memoryview:
        """As `_encoded`. Raises as `make`."""
        try:
            return self._encoded(shard, sink, mine, room, creation)
        except RoundGoneError:
            if (answer := self._lost()) is not None:
                raise answer from None
            raise

    def _lost(self) -> Rejection | None:
        """What to say where contributions are gone although their round is not over; None: it is over."""
        return None

    def _encoded(
        self,
        shard: int,
        sink: Sink,
        mine: Contribution | None,
        room: Callable[[int], Payload],
        creation: Creation | None,
    ) -> memoryview:
        """The object of a shard, sent by `creation` while it is made; `sink` receives what every replica decodes."""
        key, blocks = self._key(shard), self._blocks_of(shard)
        body = room(self._size(blocks)).data
        body[:HEADER_BYTES] = bytes(HEADER_BYTES)
        put_header(body, self._header(shard))
        mean, sent = self._mean(shard, mine), 0
        for run, values in regrouped(mean, blocks):
            start, stop = byte_range(blocks, run)
            encoding = Encoding(self._codec, dither=True, decoded=values if self._codec.loses else None)
            encode_into(body[start:stop], Records(key, blocks, run), values, encoding)
            if creation is not None and (stop - sent >= STREAM_BYTES or stop == len(body)):
                creation.send(body[sent:stop])
                sent = stop
            sink(blocks.span(run), values)
        return body

    def _mean(self, shard: int, mine: Contribution | None) -> WeightedMean:
        return WeightedMean(self._context, self._commit, self._which(shard), mine)

    def _stored_now(self, shard: int, body: memoryview) -> None:
        """Called once this process has stored a shard, or the statement in its place."""

    def _header(self, shard: int, rejected: tuple[Exclusion, ...] = ()) -> ReducedHeader:
        return ReducedHeader(
            run=self._commit.run,
            round=self._commit.round,
            revision=self._commit.revision,
            shard=shard,
            codec=self._codec.label,
            roster=self._roster,
            rejected=rejected,
        )

    def _check(self, header: ReducedHeader, shard: int) -> None:
        found = (header.run, header.shard, header.roster, header.codec)
        if found != (self._commit.run, shard, self._roster, self._codec.label):
            message = "its header belongs to another run, shard, list of members or codec"
            raise CodecError(message)
        if header.rejected:
            raise Rejection(header.rejected)
