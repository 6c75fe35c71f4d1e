"""The shards of a round over several places: those of a place's sum, and those of the mean.

Both are as the shards of a round at one place, but for what they are made of. They lie in the run's bucket, and of the
mean's each place has copies in a bucket of its own. What one place stores for another is encoded with the codec between
places. It has no residual: a sum is the work of several members, and whoever makes it again must write the same bytes.
So it is rounded at random as means are (`Dither`), or to 8 bits and more, and what it loses is lost but not missed on
average.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial

from muster.contract.run.commit import Commit, Exclusion
from muster.options.places.replica.roles import Roles
from muster.replica.replica_errors import RendezvousError
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.reduced_shards import Look, ReducedShards, Sink, shards_of
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.rounds.weighted_mean import (
    REASON_CHARACTERS,
    REJECTED_MAX,
    Computed,
    Rejection,
    Term,
    WeightedMean,
    regrouped,
    stored_records,
    values_of,
)
from muster.replica.store.read_ahead import ByteRange
from muster.replica.store.transport import (
    Bytes,
    ObjectMissingError,
    Store,
    StoreDeniedError,
    StoreUnavailableError,
    create_once,
)
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES, CodecError, Floats, byte_range, decode_header, encode
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.headers import ReducedHeader
from muster.replica.wire.stream_decoder import ByteStream

_DIGITS = 16  # of the digest of a place's members, in keys


class PlaceSums(ReducedShards):
    """The shards of what the contributions of one place have come to: a place's part in the mean."""

    def __init__(self, context: RoundContext, commit: Commit, place: str) -> None:
        self._part = commit.model_copy(update={"members": Roles(commit).places[place]})
        super().__init__(context, self._part)
        self.number = shards_of(commit, context.codec)
        self._place = place
        self.ranks = tuple(member.rank for member in self._part.members)
        self.weight = sum(member.weight for member in self._part.members)

    def given(self, shard: int, mine: Contribution | None, blocks: Blocks) -> Iterator[Floats]:
        """The values of a shard in the runs of `blocks`, from the contributions. Raises as `make`."""
        mean = WeightedMean(self._context, self._part, self._which(shard), mine)
        return self._in_runs(mean, blocks)

    def read_in_runs(self, shard: int, blocks: Blocks) -> Iterator[Floats]:
        """The values of a stored shard in the runs of `blocks`. Raises as `make`."""
        own = self._blocks_of(shard)
        term = Term(self.ranks, 1.0, self._key(shard), partial(self._records, shard, own))
        return self._in_runs(WeightedMean(self._context, self._part, range(own.number), None, (own, (term,))), blocks)

    def _lost(self) -> Rejection | None:
        """What to say where contributions are gone; None if their round is over, and they are deleted.

        The bucket of a place may have lost what its members have given. The run does without.
        """
        commit, context = self._part, self._context
        if context.store.exists(rendezvous_keys.commit(commit.round + 1)):
            return None
        blocks = Blocks(commit.count, context.codec, commit.exact)
        gone = {
            member.rank: store.uri(key)
            for member in commit.members
            for store, key, _ in values_of(context, commit.round, member, blocks)
            if not store.exists(key)
        }
        reasons = {rank: f"its values are gone: {uri}"[:REASON_CHARACTERS] for rank, uri in gone.items()}
        found = tuple(Exclusion(rank=rank, reason=reason) for rank, reason in reasons.items())
        return Rejection(found[:REJECTED_MAX]) if found else None

    def _key(self, shard: int) -> str:
        return rendezvous_keys.place_sum(self._place, self._commit.round, self._roster[:_DIGITS], shard)

    def _records(self, shard: int, blocks: Blocks, rest: range) -> Iterator[memoryview]:
        """The records of `rest` of a stored shard. Those from its first one on are behind a header that is its own."""
        key = self._key(shard)
        if rest.start:
            yield from stored_records(self.store, blocks, key, range(blocks.number), rest)
            return
        size = blocks.stream_bytes
        stop = byte_range(blocks, rest)[1]
        with closing(ByteStream(self.store.stream(key, 0, stop, sizes=(HEADER_BYTES, size)))) as stream:
            try:
                self._check(decode_header(key, stream.take(HEADER_BYTES), ReducedHeader), shard)
            except CodecError as error:
                # Without its records the reader tries again.
                log.warning("round=%d event=damaged-sum shard=%d reason=%r", self._commit.round, shard, str(error))
                return
            while piece := stream.take(size):
                yield piece

    @staticmethod
    def _in_runs(mean: WeightedMean, blocks: Blocks) -> Iterator[Floats]:
        return (values for _, values in regrouped(mean, blocks))


class MeanOfPlaces(ReducedShards):
    """The shards of the mean of a round, made of the places' sums."""

    def __init__(self, context: RoundContext, commit: Commit, place: str, near: Store | None) -> None:
        """For a process at `place`. `near`: the place's bucket, which gets copies; None at home."""
        super().__init__(context, commit)
        self._place, self._near = place, near
        self._carried: set[int] = set()  # shards of which a copy is stored while they are read
        self.sums = {name: PlaceSums(context, commit, name) for name in Roles(commit).places}

    def say(self, shard: int, sink: Sink, rejected: tuple[Exclusion, ...] = (), late: tuple[str, ...] = ()) -> Look:
        """State that a shard cannot be made, unless it is stored: nothing came from the `late` places. As `read`."""
        header = self._header(shard, rejected).model_copy(update={"late": late})
        create_once(self.store, self._key(shard), encode(self._key(shard), None, lambda _: header))
        return self.read(shard, sink)

    def carry(self, shard: int, sink: Sink) -> Look:
        """As `read`, of a whole shard; and store a copy in the place's bucket."""
        self._carried.add(shard)
        try:
            return self.read(shard, sink)
        except Rejection:
            with suppress(ObjectMissingError):  # deleted since
                self._stored_now(shard, self.store.read(self._key(shard)).body)
            raise
        finally:
            self._carried.discard(shard)

    def repair(self, shard: int, sink: Sink) -> None:
        """As that of a round at one place, where this place has made the shard: no other has its contributions."""
        if Roles(self._commit).maker(shard) != self._place:
            message = f"{self.store.uri(self._key(shard))} is damaged, and another place has made it."
            raise RendezvousError(message)
        super().repair(shard, sink)

    def _check(self, header: ReducedHeader, shard: int) -> None:
        super()._check(header, shard)
        if header.late:
            raise Rejection((), tuple(rank for place in header.late for rank in self.sums[place].ranks))

    def _mean(self, shard: int, mine: Contribution | None) -> WeightedMean:
        if len(self.sums) == 1:
            return super()._mean(shard, mine)
        blocks = self._blocks_of(shard)
        computed = {
            place: Computed(
                sums.given(shard, mine, blocks) if place == self._place else sums.read_in_runs(shard, blocks)
            )
            for place, sums in self.sums.items()
        }
        others = [values for place, values in computed.items() if place != self._place]
        self._context.side_by_side(Computed.begin, others)
        terms = [Term(sums.ranks, sums.weight, computed=computed[place]) for place, sums in self.sums.items()]
        return WeightedMean(self._context, self._commit, range(blocks.number), None, (blocks, terms))

    def _lost(self) -> Rejection | None:
        own = self.sums.get(self._place)
        return None if own is None else own._lost()

    def _stored_now(self, shard: int, body: memoryview) -> None:
        if self._near is not None:
            _store_copy(self._near, self._key(shard), body)

    def _stream(self, wanted: ByteRange, sizes: tuple[int, int]) -> Iterator[memoryview]:
        pieces = super()._stream(wanted, sizes)
        shard = next((shard for shard in self._carried if self._key(shard) == wanted.key), None)
        if shard is None or self._near is None:
            return pieces
        return _copied(pieces, self._near, wanted.key, self._size(self._blocks_of(shard)))


class Copies(MeanOfPlaces):
    """The copies of the mean's shards that a place has in its bucket."""

    def __init__(self, context: RoundContext, commit: Commit, place: str, near: Store) -> None:
        super().__init__(context, commit, place, near)
        self.store = near

    def _stream(self, wanted: ByteRange, sizes: tuple[int, int]) -> Iterator[memoryview]:
        return self.store.stream(wanted.key, wanted.start, wanted.stop, sizes=sizes)


def _copied(pieces: Iterator[memoryview], near: Store, key: str, size: int) -> Iterator[memoryview]:
    """`pieces`, of which a copy is there once all have been taken. Who does not find it reads in the run's bucket."""
    creation = near.creation(key, size)
    body = bytearray()
    try:
        for piece in pieces:
            if creation is None:
                body += piece
            else:
                creation.send(piece)
            yield piece
    except BaseException:
        if creation is not None:
            creation.discard()
        raise
    if creation is None:
        _store_copy(near, key, body)
    elif not creation.finish():
        log.info("event=not-copied key=%s", key)


def _store_copy(near: Store, key: str, body: Bytes) -> None:
    try:
        create_once(near, key, body)
    except (StoreDeniedError, StoreUnavailableError) as error:
        log.warning("event=not-copied reason=%r", str(error))
