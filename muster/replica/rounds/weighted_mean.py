"""The weighted mean of a shard, run by run of blocks, from all contributions: no contribution is held."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from muster.contract.run.commit import HOME, Commit, Exclusion, Member
from muster.replica.kernel.calls import ONE
from muster.replica.replica_errors import RoundGoneError
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.round_context import RoundContext
from muster.replica.store.read_ahead import ByteRange, ReadAhead
from muster.replica.store.transport import ObjectMissingError, Store
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
    """The shard cannot be made: these members' data are unusable, or those of `late` ranks have not come in time."""

    def __init__(self, rejected: tuple[Exclusion, ...], late: tuple[int, ...] = ()) -> None:
        self.rejected, self.late = rejected, late
        super().__init__(str(rejected))


class Computed:
    """Values that are computed run by run, in the runs in which they are added."""

    def __init__(self, runs: Iterator[Floats]) -> None:
        self._runs = runs
        self._first: Floats | None = None

    def begin(self) -> None:
        """Wait for the first run."""
        self._first = next(self._runs)

    def take(self) -> Floats:
        """The next run's values, valid until the next call."""
        first, self._first = self._first, None
        return next(self._runs) if first is None else first


@dataclass(frozen=True)
class Term:
    """Values that count in a mean.

    Attributes:
        ranks: whose they are.
        key: what their records are bound to.
        records: those of a run of blocks, as they are stored.
        is_whole: whether they lie in one object, and may be read before their turn.
        computed: values that are not read; then `records` is not asked for.
    """

    ranks: tuple[int, ...]
    weight: float
    key: str = ""
    records: Callable[[range], Iterator[memoryview]] = lambda _: iter(())
    is_whole: bool = False
    computed: Computed | None = None


def contributions(context: RoundContext, commit: Commit, blocks: Blocks) -> tuple[Term, ...]:
    """The contributions of the members, which are cut into `blocks`."""
    # Nothing is read ahead of rounds over several places.
    ahead = None if context.places else context.ahead

    def term(member: Member) -> Term:
        objects = values_of(context, commit.round, member, blocks)

        def records(rest: range) -> Iterator[memoryview]:
            return chain.from_iterable(
                stored_records(ahead or store, blocks, key, held, both)
                for store, key, held in objects
                if (both := in_both(held, rest))
            )

        key = rendezvous_keys.contribution(commit.round, member.rank, member.epoch)
        return Term((member.rank,), member.weight, key, records, is_whole=len(objects) == 1)

    return tuple(map(term, commit.members))


def values_of(context: RoundContext, round_: int, member: Member, blocks: Blocks) -> list[tuple[Store, str, range]]:
    """Where the values of a contribution lie: stores and objects, and the blocks that each has."""
    key, number = rendezvous_keys.contribution(round_, member.rank, member.epoch), member.objects
    if number is None:
        return [(context.store, key, range(blocks.number))]
    store = context.store if member.place == HOME else context.values
    parts = ((part, blocks.shard(part, number)) for part in range(number))
    return [(store, rendezvous_keys.contribution_part(key, part), held) for part, held in parts if held]


def stored_records(
    store: Store | ReadAhead, blocks: Blocks, key: str, held: range, which: range
) -> Iterator[memoryview]:
    """The records of `which` in the object `key`, which has those of `held`."""
    wanted, size = records_range(blocks, key, held, which), blocks.stream_bytes
    return store.stream(key, wanted.start, wanted.stop, sizes=(size, size))


def records_range(blocks: Blocks, key: str, held: range, which: range) -> ByteRange:
    """Where the records of `which` lie in the object `key`, which has those of `held`."""
    return ByteRange(key, *byte_range(blocks, range(which.start - held.start, which.stop - held.start)))


class WeightedMean:
    """The mean of the members' contributions in the blocks `which`: any process computes the same bytes."""

    def __init__(
        self,
        context: RoundContext,
        commit: Commit,
        which: range,
        mine: Contribution | None,
        others: tuple[Blocks, Sequence[Term]] | None = None,
    ) -> None:
        """The mean of a commit's contributions.

        Args:
            mine: this process's own contribution, whose values need not be read; None if all are read.
            others: the mean is that of these terms, and `which` are of these blocks.
        """
        self._context = context
        self._round = commit.round
        self._which = which
        self._mine = mine
        blocks = Blocks(commit.count, context.codec, commit.exact)
        self._blocks, self._terms = others or (blocks, contributions(context, commit, blocks))
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
        terms = self._terms
        batches = [terms[first : first + CONNECTIONS] for first in range(0, len(terms), CONNECTIONS)]
        # Of so many members that they are read one batch after another, the sums are held.
        sums = np.empty(self._length if len(batches) > 1 else self._blocks.piece_elements, np.float32)
        rejected: list[Exclusion] = []
        try:
            self._read_ahead(terms)
            for number, batch in enumerate(batches):
                sources = [(term, self._records(term)) for term in batch]
                readers = [given for _, given in sources if isinstance(given, RecordReader)]
                self._context.side_by_side(RecordReader.begin, readers)
                start = 0
                for run in self._blocks.pieces(self._which):
                    span = self._blocks.span(run)
                    target = sums[start : start + span.stop - span.start]
                    start += target.size if len(batches) > 1 else 0
                    is_last = number + 1 == len(batches)
                    factor = np.float32(1 / len(terms)) if is_last else ONE
                    total = WeightedSum(target, self._room, held=number > 0, factor=factor, terms=len(sources))
                    rejected += self._add(sources, total, run)
                    if is_last and not rejected:
                        yield target
        except ObjectMissingError:
            # A committed contribution did exist: its absence is not the sender's fault.
            raise RoundGoneError(self._round) from None
        if rejected:
            raise Rejection(tuple(rejected[:REJECTED_MAX]))

    def _read_ahead(self, terms: Sequence[Term]) -> None:
        """Read those after this process's own rank first, as many as may be held: not all begin with the same one.

        The sum begins with the first member all the same, so that every process computes the same bits.
        """
        mine = self._mine
        if mine is None or len(terms) <= CONNECTIONS:
            return
        start, stop = byte_range(self._blocks, self._which)
        after = [term for term in terms if term.ranks[0] > mine.header.member.rank and term.is_whole]
        held = after[: HELD_BYTES // (stop - start)]

        def hold(term: Term) -> None:
            self._held[term.key] = b"".join(term.records(self._which))

        self._context.side_by_side(hold, held)

    @property
    def _length(self) -> int:
        span = self._blocks.span(self._which)
        return int(span.stop - span.start)

    def _add(
        self, sources: list[tuple[Term, Contribution | RecordReader | Computed]], total: WeightedSum, run: range
    ) -> list[Exclusion]:
        """Add the values of `run` in the members' order, while they are in the cache.

        Args:
            sources: those whose data are unusable are removed; they are returned.
        """
        average = sum(term.weight for term in self._terms) / len(self._terms)
        rejected = []
        for source in tuple(sources):
            term, given = source
            weight = np.float32(term.weight / average)
            try:
                if isinstance(given, Contribution):
                    span, start = self._blocks.span(run), self._blocks.span(given.which).start
                    total.add(given.values[span.start - start : span.stop - start], weight)
                elif isinstance(given, Computed):
                    total.add(given.take(), weight)
                else:
                    given.add(run, total, weight)
            except CodecError as error:
                rejected += [Exclusion(rank=rank, reason=str(error)[:REASON_CHARACTERS]) for rank in term.ranks]
                sources.remove(source)
        total.complete()
        return rejected

    def _records(self, term: Term) -> Contribution | RecordReader | Computed:
        """A member's contribution, from one object or from its parts; this process's own if that is in its memory."""
        key, mine = term.key, self._mine
        if term.computed is not None:
            return term.computed
        if mine is not None and mine.key == key and in_both(mine.which, self._which) == self._which:
            return mine

        def open_at(rest: range) -> ByteStream:
            if rest == self._which and (body := self._held.pop(key, None)) is not None:
                return ByteStream((memoryview(body),))
            return ByteStream(term.records(rest))

        return RecordReader(key, open_at, self._blocks, self._which)


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


def in_both(one: range, other: range) -> range:
    """The blocks of both; none if it is false."""
    return range(max(one.start, other.start), min(one.stop, other.stop))
