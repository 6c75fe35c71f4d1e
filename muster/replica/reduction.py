"""Reduce and gather: from a commit to the weighted mean, the same bytes for everybody who asks."""

from __future__ import annotations

from itertools import cycle

import numpy as np

from muster.contract.commit import Commit, Exclusion, Member
from muster.replica import keys
from muster.replica.blocks import PIECE_ELEMENTS, Blocks
from muster.replica.codec import (
    HEADER_BYTES,
    CodecError,
    Floats,
    byte_range,
    decode_header,
    decode_into,
    encode,
    object_bytes,
)
from muster.replica.commits import amended, write_commit
from muster.replica.contribution import Contribution
from muster.replica.errors import RoundGoneError
from muster.replica.headers import ReducedHeader, roster_digest
from muster.replica.incoming import Incoming, decode_incoming
from muster.replica.meeting import Meeting, Patience, log
from muster.replica.transport import ObjectExistsError, ObjectMissingError

# A shard is taken over once its owner takes this many times as long as one's own shard took, at least the floor.
# To be wrong costs the work alone: whoever is first, the bytes are the same.
TAKEOVER_FACTOR = 2.0
TAKEOVER_FLOOR_SECONDS = 1.0
READ_TRIES = 3
# What fits into a shard's header; the members beyond are rejected by the next revision.
REJECTED_MAX = 8
REASON_CHARACTERS = 200


class Rejection(Exception):  # noqa: N818 - an answer, not an error
    """The shard cannot be made: these members' data are unusable."""

    def __init__(self, rejected: tuple[Exclusion, ...]) -> None:
        self.rejected = rejected
        super().__init__(str(rejected))


def reduced_mean(
    meeting: Meeting, commit: Commit, mine: Contribution | None, patience: Patience
) -> tuple[Commit, Floats]:
    """The weighted mean of a committed round, and the commit (or its last amendment) that it is the mean of.

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
        self._blocks = Blocks(commit.count)
        self._roster = roster_digest(commit)
        self._shards = self._blocks.shards(len(commit.members))
        self._position = None if mine is None else _position(commit, mine.header.member)

    def gather(self, patience: Patience) -> Floats:
        """All shards together: one's own made, the others' read, the overdue ones taken over."""
        clock = self._meeting.clock
        mean = np.empty(self._commit.count, np.float32)  # takes no memory before it is written to
        missing = list(range(self._shards))
        started = clock.monotonic()
        for own in [shard for shard in missing if self._distance(shard) == 0]:
            self._make(own, mean[self._span(own)])
            missing.remove(own)
        step = max(TAKEOVER_FLOOR_SECONDS, TAKEOVER_FACTOR * (clock.monotonic() - started))
        started = clock.monotonic()
        patience.reset()
        while missing:
            found = self._meeting.side_by_side(lambda shard: self._read(shard, mean[self._span(shard)]), missing)
            missing = [shard for shard, there in zip(missing, found, strict=True) if not there]
            due = {shard: started + step * self._distance(shard) for shard in missing}
            for shard in [shard for shard in missing if clock.monotonic() >= due[shard]]:
                log.warning("round=%d event=take-over shard=%d", self._commit.round, shard)
                self._make(shard, mean[self._span(shard)])
                missing.remove(shard)
            if missing:
                self._watch(missing, min(due[shard] for shard in missing), patience)
        return mean

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

        def header(_: str) -> ReducedHeader:
            return ReducedHeader(
                run=self._commit.run,
                round=self._commit.round,
                revision=self._commit.revision,
                shard=shard,
                roster=self._roster,
                rejected=rejected,
            )

        key = self._key(shard)
        try:
            self._meeting.store.create(key, encode(key, None if rejected else values, header))
        except ObjectExistsError:
            if self._read(shard, values):
                return
        if rejected:
            raise Rejection(rejected)

    def _compute(self, shard: int, mean: Floats) -> None:
        """The weighted mean of a shard, members in the commit's order: the same bytes whoever computes it."""
        parts = self._meeting.side_by_side(lambda member: self._part(member, shard), self._commit.members)
        rejected = tuple(part for part in parts if isinstance(part, Exclusion))
        if rejected:
            raise Rejection(rejected[:REJECTED_MAX])
        total = sum(member.weight for member in self._commit.members)
        weights = [np.float32(member.weight / total) for member in self._commit.members]
        for start in range(0, mean.size, PIECE_ELEMENTS):
            piece = slice(start, start + PIECE_ELEMENTS)
            summed = np.zeros_like(mean[piece])
            for weight, part in zip(weights, parts, strict=True):
                if not isinstance(part, Exclusion):
                    summed += part[piece] * weight
            mean[piece] = summed

    def _part(self, member: Member, shard: int) -> Floats | Exclusion:
        """A member's values of a shard, or why they cannot be used."""
        key = keys.contribution(self._commit.round, member.rank, member.epoch)
        which = self._which(shard)
        span = self._span(shard)
        start, stop = byte_range(self._blocks, which)
        values = np.empty(span.stop - span.start, np.float32)
        reason = ""
        for _ in range(READ_TRIES):
            try:
                if self._mine is not None and self._mine.key == key:
                    decode_into(values, key, memoryview(self._mine.body)[start:stop], self._blocks, which)
                else:
                    incoming = Incoming(self._meeting.store.stream(key, start, stop))
                    decode_incoming(values, key, incoming, self._blocks, which)
            except ObjectMissingError:
                # What was committed was there: it is no fault of the sender.
                raise RoundGoneError(self._commit.round) from None
            except CodecError as error:
                # Damage on the way passes with another look; damage in the bucket does not.
                reason = str(error)
            else:
                return values
        return Exclusion(rank=member.rank, reason=reason[:REASON_CHARACTERS])

    def _read(self, shard: int, values: Floats) -> bool:
        """Fill in a stored shard; False while there is none. A damaged one is computed anew: the bytes are the same."""
        key = self._key(shard)
        blocks = Blocks(values.size)
        # One byte more than it can have: what is too long is noticed.
        incoming = Incoming(self._meeting.store.stream(key, 0, object_bytes(values.size) + 1))
        try:
            self._check(decode_header(key, incoming.take(HEADER_BYTES), ReducedHeader), shard)
            decode_incoming(values, key, incoming, blocks, range(blocks.number))
        except ObjectMissingError:
            return False
        except CodecError as error:
            log.warning("round=%d event=damaged-shard shard=%d reason=%r", self._commit.round, shard, str(error))
            self._compute(shard, values)
        return True

    def _check(self, header: ReducedHeader, shard: int) -> None:
        if (header.run, header.shard, header.roster) != (self._commit.run, shard, self._roster):
            message = "its header belongs to another run, shard or list of members"
            raise CodecError(message)
        if header.rejected:
            raise Rejection(header.rejected)


def _position(commit: Commit, member: Member) -> int | None:
    """The place of `member` among those who are averaged, None when it is not."""
    return commit.members.index(member) if member in commit.members else None
