"""The weighted mean of a shard, run by run of blocks, from all contributions: no contribution is held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from muster.contract.run.commit import Commit, Exclusion, Member
from muster.replica.kernel.calls import ONE
from muster.replica.replica_errors import RoundGoneError
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.round_context import RoundContext
from muster.replica.store.transport import ObjectMissingError
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import CodecError, Floats, byte_range
from muster.replica.wire.blocks import CONNECTIONS, Blocks
from muster.replica.wire.stream_decoder import ByteStream, RecordReader
from muster.replica.wire.weighted_sum import WeightedSum

# Of contributions that are read before their turn in the sum. The shards that a process makes at once take a part each.
HELD_BYTES = 2**27
# What fits into a shard's header; the next revision rejects further members.
REJECTED_MAX = 8
REASON_CHARACTERS = 200


class Rejection(Exception):  # noqa: N818 - an answer, not an error
    """The shard cannot be made: these members' data are unusable."""

    def __init__(self, rejected: tuple[Exclusion, ...]) -> None:
        self.rejected = rejected
        super().__init__(str(rejected))


class WeightedMean:
    """The mean of the members' contributions in the blocks `which`: any process computes the same bytes."""

    def __init__(self, context: RoundContext, commit: Commit, which: range, mine: Contribution | None) -> None:
        """`mine`: this process's own contribution, whose values need not be read; None if all are read."""
        self._context = context
        self._commit = commit
        self._which = which
        self._mine = mine
        self._blocks = Blocks(commit.count, context.codec, commit.exact)
        self._room = np.empty(self._blocks.piece_elements, np.float32)
        # What is read before its turn: the records of `which`, by key. Read again where they are damaged.
        self._held: dict[str, bytes] = {}

    @property
    def blocks(self) -> Blocks:
        """How the contributions are cut."""
        return self._blocks

    def runs(self) -> Iterator[Floats]:
        """The values of one run of blocks after another, each valid until the next.

        A run of this process's own contribution may be overwritten once it is returned here.

        Raises:
            Rejection: members' data are unusable. After the last run; further runs are not returned.
            RoundGoneError: the contributions are deleted.
        """
        members = self._commit.members
        batches = [members[first : first + CONNECTIONS] for first in range(0, len(members), CONNECTIONS)]
        # Of so many members that they are read one batch after another, the sums are held.
        sums = np.empty(self._length if len(batches) > 1 else self._blocks.piece_elements, np.float32)
        rejected: list[Exclusion] = []
        try:
            self._read_ahead(members)
            for number, batch in enumerate(batches):
                sources = [(member, self._records(member)) for member in batch]
                readers = [given for _, given in sources if isinstance(given, RecordReader)]
                self._context.side_by_side(RecordReader.begin, readers)
                start = 0
                for run in self._blocks.pieces(self._which):
                    span = self._blocks.span(run)
                    target = sums[start : start + span.stop - span.start]
                    start += target.size if len(batches) > 1 else 0
                    is_last = number + 1 == len(batches)
                    factor = np.float32(1 / len(members)) if is_last else ONE
                    total = WeightedSum(target, self._room, held=number > 0, factor=factor, terms=len(sources))
                    rejected += self._add(sources, total, run)
                    if is_last and not rejected:
                        yield target
        except ObjectMissingError:
            # A committed contribution did exist: its absence is not the sender's fault.
            raise RoundGoneError(self._commit.round) from None
        if rejected:
            raise Rejection(tuple(rejected[:REJECTED_MAX]))

    def _read_ahead(self, members: Sequence[Member]) -> None:
        """Read those after this process's own rank first, as many as may be held: not all begin with the same one.

        The sum begins with the first member all the same, so that every process computes the same bits.
        """
        mine = self._mine
        if mine is None or len(members) <= CONNECTIONS:
            return
        start, stop = byte_range(self._blocks, self._which)
        after = [member for member in members if member.rank > mine.header.member.rank and member.parts is None]
        held = after[: HELD_BYTES // (stop - start)]

        def hold(member: Member) -> None:
            key = self._key(member)
            self._held[key] = b"".join(self._stored(key, range(self._blocks.number), self._which))

        self._context.side_by_side(hold, held)

    def _key(self, member: Member) -> str:
        return rendezvous_keys.contribution(self._commit.round, member.rank, member.epoch)

    @property
    def _length(self) -> int:
        span = self._blocks.span(self._which)
        return int(span.stop - span.start)

    def _add(
        self, sources: list[tuple[Member, Contribution | RecordReader]], total: WeightedSum, run: range
    ) -> list[Exclusion]:
        """Add the values of `run` in the members' order, while they are in the cache.

        Args:
            sources: those whose data are unusable are removed; they are returned.
        """
        average = sum(member.weight for member in self._commit.members) / len(self._commit.members)
        rejected = []
        for source in tuple(sources):
            member, given = source
            weight = np.float32(member.weight / average)
            try:
                if isinstance(given, Contribution):
                    span, start = self._blocks.span(run), self._blocks.span(given.which).start
                    total.add(given.values[span.start - start : span.stop - start], weight)
                else:
                    given.add(run, total, weight)
            except CodecError as error:
                rejected.append(Exclusion(rank=member.rank, reason=str(error)[:REASON_CHARACTERS]))
                sources.remove(source)
        total.complete()
        return rejected

    def _records(self, member: Member) -> Contribution | RecordReader:
        """A member's contribution, from one object or from its parts; this process's own if that is in its memory."""
        key, mine = self._key(member), self._mine
        if mine is not None and mine.key == key and _both(mine.which, self._which) == self._which:
            return mine

        def open_at(rest: range) -> ByteStream:
            if rest == self._which and (body := self._held.pop(key, None)) is not None:
                return ByteStream((memoryview(body),))
            if member.parts is None:
                return ByteStream(self._stored(key, range(self._blocks.number), rest))
            parts = (self._blocks.shard(part, member.parts) for part in range(member.parts))
            return ByteStream(
                chain.from_iterable(
                    self._stored(rendezvous_keys.contribution_part(key, part), held, both)
                    for part, held in enumerate(parts)
                    if (both := _both(held, rest))
                )
            )

        return RecordReader(key, open_at, self._blocks, self._which)

    def _stored(self, key: str, held: range, which: range) -> Iterator[memoryview]:
        """The records of `which` in the object `key`, which has those of `held`."""
        start, stop = byte_range(self._blocks, range(which.start - held.start, which.stop - held.start))
        size = self._blocks.stream_bytes
        return self._context.store.stream(key, start, stop, sizes=(size, size))


def regrouped(mean: WeightedMean, blocks: Blocks) -> Iterator[tuple[range, Floats]]:
    """The values of `mean` in the runs of other blocks, each valid until the next."""
    runs, pieces = mean.runs(), blocks.pieces(range(blocks.number))
    steps = [(each.elements, each.exact and each.exact_elements) for each in (blocks, mean.blocks)]
    if steps[0] == steps[1]:
        yield from zip(pieces, runs, strict=True)
        return
    room, filled = np.empty(mean.blocks.piece_elements + blocks.piece_elements, np.float32), 0
    for piece in pieces:
        span = blocks.span(piece)
        size = span.stop - span.start
        while filled < size:
            values = next(runs)
            room[filled : filled + values.size] = values
            filled += values.size
        yield piece, room[:size]
        room[: filled - size] = room[size:filled].copy()
        filled -= size


def _both(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
