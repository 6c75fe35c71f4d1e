"""Reduce and gather: from a commit to the weighted mean, the same bytes for everybody who asks."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

import numpy as np

from muster.contract.run.commit import Commit, Exclusion, Member
from muster.replica.errors import RoundGoneError
from muster.replica.rounds.commits import amended, write_commit
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.round_context import CONNECTIONS, Meeting, Patience, log
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    CodecError,
    Floats,
    byte_range,
    decode_header,
    decode_into,
    encode,
    object_bytes,
)
from muster.replica.wire.blocks import PIECE_ELEMENTS, Blocks
from muster.replica.wire.headers import ReducedHeader, roster_digest
from muster.replica.wire.stream_decoder import Incoming, Records, decode_incoming

# A shard is taken over once its owner takes this many times as long as one's own shard took, at least the floor.
# To be wrong costs the work alone: whoever is first, the bytes are the same.
TAKEOVER_FACTOR = 2.0
TAKEOVER_FLOOR_SECONDS = 1.0
# What fits into a shard's header; the members beyond are rejected by the next revision.
REJECTED_MAX = 8
REASON_CHARACTERS = 200
# Each is read over as many connections as there are members.
MADE_AT_ONCE = 4


class Rejection(Exception):  # noqa: N818 - an answer, not an error
    """The shard cannot be made: these members' data are unusable."""

    def __init__(self, rejected: tuple[Exclusion, ...]) -> None:
        self.rejected = rejected
        super().__init__(str(rejected))


def reduced_mean(
    meeting: Meeting, commit: Commit, mine: Contribution | None, patience: Patience
) -> tuple[Commit, Floats]:
    """The weighted mean of a committed round, and the commit (or its last amendment) that it is the mean of.

    The mean lies in a buffer of the meeting's: the next round's takes its place.

    Whoever asks may have to help: members compute their own shard, then shards whose owner does not deliver; others
    (joiners that replay) do so last.

    Raises:
        StoppedError, RendezvousError
    """
    while True:
        try:
            return commit, _Reduction(meeting, commit, mine).gather(patience)
        except Rejection as answer:
            for item in answer.rejected:
                log.warning("round=%d event=excluded rank=%d reason=%r", commit.round, item.rank, item.reason)
            amendment = amended(commit, answer.rejected)
            commit = write_commit(meeting, amendment) or amendment


class _Reduction:
    """One revision of one round."""

    def __init__(self, meeting: Meeting, commit: Commit, mine: Contribution | None) -> None:
        self._meeting = meeting
        self._commit = commit
        self._mine = mine
        self._blocks = Blocks(commit.count, meeting.codec)
        self._codec = meeting.codec.for_mean(len(commit.members))
        self._roster = roster_digest(commit)
        self._shards = self._blocks.shards(len(commit.members))
        self._position = None if mine is None else _position(commit, mine.header.member)

    def gather(self, patience: Patience) -> Floats:
        """All shards together: one's own made, the others' read, the overdue ones taken over."""
        clock = self._meeting.clock
        mean = self._meeting.buffers.floats("mean", self._commit.count)
        missing = list(range(self._shards))
        started = clock.monotonic()
        own = [shard for shard in missing if self._distance(shard) == 0]
        self._make_all(own, mean)
        missing = [shard for shard in missing if shard not in own]
        step = max(TAKEOVER_FLOOR_SECONDS, TAKEOVER_FACTOR * (clock.monotonic() - started))
        started = clock.monotonic()
        patience.reset()
        while missing:
            missing = self._read_all(missing, mean)
            # Once the round was whole a look that still finds nothing finds what is deleted.
            if missing and self._position is None and self._was_whole() and self._read_all(missing, mean):
                raise RoundGoneError(self._commit.round)
            due = {shard: started + step * self._distance(shard) for shard in missing}
            for shard in [shard for shard in missing if clock.monotonic() >= due[shard]]:
                log.warning("round=%d event=take-over shard=%d", self._commit.round, shard)
                self._make(shard, mean[self._span(shard)])
                missing.remove(shard)
            if missing:
                self._watch(missing, min(due[shard] for shard in missing), patience)
        return mean

    def _make_all(self, own: list[int], mean: Floats) -> None:
        """Make one's own shards: most often one, some at a time where the model is large."""
        if len(own) < 2:
            for shard in own:
                self._make(shard, mean[self._span(shard)])
            return
        # Threads of their own: each waits for requests of the meeting's.
        with ThreadPoolExecutor(MADE_AT_ONCE, "reduce") as makers:
            for _ in makers.map(lambda shard: self._make(shard, mean[self._span(shard)]), own):
                pass

    def _read_all(self, shards: list[int], mean: Floats) -> list[int]:
        """Fill in those of `shards` that are stored; returns the others."""
        found = self._meeting.side_by_side(lambda shard: self._read(shard, mean[self._span(shard)]), shards)
        return [shard for shard, there in zip(shards, found, strict=True) if not there]

    def _was_whole(self) -> bool:
        """Whether all shards were there at some time: who gave to the next round had read them."""
        return self._meeting.store.exists(keys.commit(self._commit.round + 1))

    def _watch(self, missing: list[int], until: float, patience: Patience) -> None:
        """Wait until one of `missing` is there, looking for one at a time: owners are done at about the same time."""
        for shard in cycle(missing):
            patience.pause(self._what_is_missing)
            if self._meeting.clock.monotonic() >= until or self._meeting.store.exists(self._key(shard)):
                return

    def _which(self, shard: int) -> range:
        return self._blocks.shard(shard, self._shards)

    def _span(self, shard: int) -> slice:
        return self._blocks.span(self._which(shard))

    def _distance(self, shard: int) -> int:
        """How many members are to make `shard` before this process does; 0 for its owner.

        Owners move on by one member each round, so that few shards do not burden the same members always.
        """
        members = len(self._commit.members)
        return members if self._position is None else (self._position - shard - self._commit.round) % members

    def _what_is_missing(self) -> str:
        return f"round {self._commit.round} is committed, but shards of its mean are missing."

    def _key(self, shard: int) -> str:
        return keys.reduced(self._commit.round, self._commit.revision, shard)

    def _make(self, shard: int, values: Floats) -> None:
        """Compute a shard and store it, unless somebody was faster: then what lies there stands."""
        rejected: tuple[Exclusion, ...] = ()
        try:
            self._compute(shard, values)
        except Rejection as answer:
            rejected = answer.rejected
        try:
            self._meeting.store.create(self._key(shard), self._encode(shard, None if rejected else values, rejected))
        except ObjectExistsError:
            if self._read(shard, values):
                return
        if rejected:
            raise Rejection(rejected)

    def _encode(self, shard: int, values: Floats | None, rejected: tuple[Exclusion, ...] = ()) -> memoryview:
        """The object of a shard. `values` become what everybody decodes from it."""

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
        body = encode(key, values, header, self._codec, dither=True)
        if values is not None and self._codec.loses:
            blocks = Blocks(values.size, self._codec)
            decode_into(values, key, body[HEADER_BYTES:], blocks, range(blocks.number))
        return body

    def _compute(self, shard: int, mean: Floats) -> None:
        """The weighted mean of a shard, members in the commit's order: the same bytes whoever computes it."""
        rejected: list[Exclusion] = []
        members = self._commit.members
        for first in range(0, len(members), CONNECTIONS):
            rejected += self._add(members[first : first + CONNECTIONS], shard, mean, held=first > 0)
        if rejected:
            raise Rejection(tuple(rejected[:REJECTED_MAX]))
        mean *= np.float32(1 / len(members))

    def _add(self, members: Sequence[Member], shard: int, mean: Floats, *, held: bool) -> list[Exclusion]:
        """Add what `members` gave to `mean`, a run of blocks at a time, which all pass through the cache but once.

        Args:
            held: whether `mean` holds a sum already; otherwise the first member's values become it.
        """
        which = self._which(shard)
        offset = self._span(shard).start
        average = sum(member.weight for member in self._commit.members) / len(self._commit.members)
        sources = {member.rank: (member, self._records(member, which)) for member in members}
        try:
            self._meeting.side_by_side(lambda rank: sources[rank][1].begin(), sources)
            rejected: list[Exclusion] = []
            room = np.empty(PIECE_ELEMENTS, np.float32)
            for run in self._blocks.pieces(which):
                span = self._blocks.span(run)
                target = mean[span.start - offset : span.stop - offset]
                summed = held
                for member, records in tuple(sources.values()):
                    values = room[: target.size] if summed else target
                    try:
                        records.decode(values, run)
                    except CodecError as error:
                        rejected.append(Exclusion(rank=member.rank, reason=str(error)[:REASON_CHARACTERS]))
                        del sources[member.rank]
                    else:
                        # Most give to a round what the others give: then there is nothing to multiply.
                        if member.weight != average:
                            values *= np.float32(member.weight / average)
                        if summed:
                            target += values
                        summed = True
        except ObjectMissingError:
            # What was committed was there: it is no fault of the sender.
            raise RoundGoneError(self._commit.round) from None
        return rejected

    def _records(self, member: Member, which: range) -> Records:
        """A member's contribution to the blocks `which`; one's own need not be read."""
        key = keys.contribution(self._commit.round, member.rank, member.epoch)
        mine = self._mine

        def open_at(rest: range) -> Incoming:
            start, stop = byte_range(self._blocks, rest)
            if mine is not None and mine.key == key:
                return Incoming([memoryview(mine.body)[start:stop]])
            return Incoming(self._meeting.store.stream(key, start, stop))

        return Records(key, open_at, self._blocks, which)

    def _read(self, shard: int, values: Floats) -> bool:
        """Fill in a stored shard; False while there is none. A damaged one is computed anew: the bytes are the same."""
        key = self._key(shard)
        blocks = Blocks(values.size, self._codec)
        # One byte more than it can have: what is too long is noticed.
        incoming = Incoming(self._meeting.store.stream(key, 0, object_bytes(values.size, self._codec) + 1))
        try:
            self._check(decode_header(key, incoming.take(HEADER_BYTES), ReducedHeader), shard)
            decode_incoming(values, key, incoming, blocks, range(blocks.number))
        except ObjectMissingError:
            return False
        except CodecError as error:
            log.warning("round=%d event=damaged-shard shard=%d reason=%r", self._commit.round, shard, str(error))
            self._compute(shard, values)
            self._encode(shard, values)
        return True

    def _check(self, header: ReducedHeader, shard: int) -> None:
        found = (header.run, header.shard, header.roster, header.codec)
        if found != (self._commit.run, shard, self._roster, self._codec.label):
            message = "its header belongs to another run, shard, list of members or codec"
            raise CodecError(message)
        if header.rejected:
            raise Rejection(header.rejected)


def _position(commit: Commit, member: Member) -> int | None:
    """The place of `member` among those who are averaged, None when it is not."""
    return commit.members.index(member) if member in commit.members else None
