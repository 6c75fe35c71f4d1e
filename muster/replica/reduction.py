"""Reduce and gather: from a commit to the weighted mean, the same bytes for everybody who asks."""

from __future__ import annotations

import numpy as np

from muster.contract.commit import Commit, Exclusion, Member
from muster.replica import keys
from muster.replica.blocks import Blocks
from muster.replica.codec import (
    HEADER_BYTES,
    CodecError,
    Floats,
    byte_range,
    decode_blocks,
    decode_header,
    encode,
)
from muster.replica.commits import amended, write_commit
from muster.replica.contribution import Contribution
from muster.replica.headers import ReducedHeader, roster_digest
from muster.replica.meeting import Meeting, Patience, log
from muster.replica.transport import ObjectExistsError, ObjectMissingError

# A shard is taken over once its owner takes this many times as long as one's own shard took, at least the floor.
TAKEOVER_FACTOR = 4.0
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
        mean = np.empty(self._commit.count, np.float32)
        missing = list(range(self._shards))
        started = self._meeting.clock.monotonic()
        for own in [shard for shard in missing if self._distance(shard) == 0]:
            mean[self._span(own)] = self._make(own)
            missing.remove(own)
        floor = max(TAKEOVER_FLOOR_SECONDS, TAKEOVER_FACTOR * (self._meeting.clock.monotonic() - started))
        started = self._meeting.clock.monotonic()
        patience.reset()
        while missing:
            found = self._meeting.side_by_side(self._read, missing)
            overdue = self._meeting.clock.monotonic() - started
            for shard, values in zip(tuple(missing), found, strict=True):
                if values is None and overdue >= floor * self._distance(shard):
                    log.warning("round=%d event=take-over shard=%d", self._commit.round, shard)
                    values = self._make(shard)  # noqa: PLW2901 - read or made, the same bytes
                if values is not None:
                    mean[self._span(shard)] = values
                    missing.remove(shard)
            if missing:
                patience.pause(self._what_is_missing)
        return mean

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

    def _make(self, shard: int) -> Floats:
        """Compute a shard and store it, unless somebody was faster: then what lies there stands."""
        rejected: tuple[Exclusion, ...] = ()
        values: Floats | None = None
        try:
            values = self._compute(shard)
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

        try:
            self._meeting.store.create(self._key(shard), encode(self._key(shard), values, header))
        except ObjectExistsError:
            found = self._read(shard)
            if found is not None:
                return found
        if values is None:
            raise Rejection(rejected)
        return values

    def _compute(self, shard: int) -> Floats:
        """The weighted mean of a shard, members in the commit's order: the same bytes whoever computes it."""
        parts = self._meeting.side_by_side(lambda member: self._part(member, shard), self._commit.members)
        rejected = tuple(part for part in parts if isinstance(part, Exclusion))
        if rejected:
            raise Rejection(rejected[:REJECTED_MAX])
        total = sum(member.weight for member in self._commit.members)
        span = self._span(shard)
        mean = np.zeros(span.stop - span.start, np.float32)
        for member, part in zip(self._commit.members, parts, strict=True):
            if not isinstance(part, Exclusion):
                mean += part * np.float32(member.weight / total)
        return mean

    def _part(self, member: Member, shard: int) -> Floats | Exclusion:
        """A member's values of a shard, or why they cannot be used."""
        key = keys.contribution(self._commit.round, member.rank, member.epoch)
        which = self._which(shard)
        start, stop = byte_range(self._blocks, which)
        reason = ""
        for _ in range(READ_TRIES):
            try:
                if self._mine is not None and self._mine.key == key:
                    body = memoryview(self._mine.body)[start:stop]
                else:
                    body = self._meeting.store.read(key, start, stop).body
                return decode_blocks(key, body, self._blocks, which)
            except ObjectMissingError:
                reason = "its contribution is gone"
            except CodecError as error:
                # Damage on the way passes with another look; damage in the bucket does not.
                reason = str(error)
        return Exclusion(rank=member.rank, reason=reason[:REASON_CHARACTERS])

    def _read(self, shard: int) -> Floats | None:
        """A stored shard; None while there is none. A damaged one is computed anew: the bytes are the same."""
        key = self._key(shard)
        try:
            body = self._meeting.store.read(key).body
        except ObjectMissingError:
            return None
        try:
            return self._decode(key, body, shard)
        except CodecError as error:
            log.warning("round=%d event=damaged-shard shard=%d reason=%r", self._commit.round, shard, str(error))
            return self._compute(shard)

    def _decode(self, key: str, body: memoryview, shard: int) -> Floats:
        header = decode_header(key, body, ReducedHeader)
        if (header.run, header.shard, header.roster) != (self._commit.run, shard, self._roster):
            message = "its header belongs to another run, shard or list of members"
            raise CodecError(message)
        if header.rejected:
            raise Rejection(header.rejected)
        span = self._span(shard)
        blocks = Blocks(span.stop - span.start)
        return decode_blocks(key, body[HEADER_BYTES:], blocks, range(blocks.number))


def _position(commit: Commit, member: Member) -> int | None:
    """The place of `member` among those who are averaged, None when it is not."""
    return commit.members.index(member) if member in commit.members else None
