"""Reduce and gather: from a commit to the weighted mean, with the same bytes on every replica."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

from muster.contract.run.commit import Commit, Member
from muster.replica.errors import RoundGoneError
from muster.replica.rounds.commit_store import amended, write_commit
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.reduced_shards import Look, ReducedShards, Rejection
from muster.replica.rounds.round_context import Polling, RoundContext, log
from muster.replica.wire import keys
from muster.replica.wire.binary_format import Floats

# A replica takes over a shard after this many times as long as its own shard took, but not before the floor. Taking
# over too early costs work, nothing else: all members write the same bytes.
TAKEOVER_FACTOR = 2.0
TAKEOVER_FLOOR_SECONDS = 1.0
# Each is read over as many connections as there are members.
MADE_AT_ONCE = 4


def reduced_mean(
    context: RoundContext, commit: Commit, mine: Contribution | None, polling: Polling
) -> tuple[Commit, Floats]:
    """The weighted mean of a committed round, and the commit (or its last amendment) that it belongs to.

    The mean lies in one of the context's buffers and is valid until the next round's is computed.

    A member computes its own shards, then those whose owner is late. A process that is not a member (it replays the
    round) computes shards only if all members are late. After the time-out it computes whatever is missing.

    Raises:
        StoppedError, RendezvousError
    """
    while True:
        try:
            return commit, _Reduction(context, commit, mine).gather(polling)
        except Rejection as answer:
            for item in answer.rejected:
                log.warning("round=%d event=excluded rank=%d reason=%r", commit.round, item.rank, item.reason)
            amendment = amended(commit, answer.rejected)
            commit = write_commit(context, amendment) or amendment


class _Reduction:
    """One revision of one round: which shards this process makes, reads or takes over, and when."""

    def __init__(self, context: RoundContext, commit: Commit, mine: Contribution | None) -> None:
        self._context = context
        self._commit = commit
        self._shards = ReducedShards(context, commit, mine)
        self._position = None if mine is None else _position(commit, mine.header.member)

    def gather(self, polling: Polling) -> Floats:
        """All shards: make this process's own, read the others', take over late ones."""
        clock = self._context.clock
        mean = self._context.buffers.floats("mean", self._commit.count)
        missing = list(range(self._shards.number))
        started = clock.monotonic()
        own = [shard for shard in missing if self._distance(shard) == 0]
        self._make_all(own, mean)
        missing = [shard for shard in missing if shard not in own]
        step = max(TAKEOVER_FLOOR_SECONDS, TAKEOVER_FACTOR * (clock.monotonic() - started))
        started = clock.monotonic()
        polling.reset()
        while missing:
            missing = self._read_all(missing, mean)
            # If the round was complete once, a second look that finds nothing means that its data are deleted.
            if missing and self._position is None and self._was_complete() and self._read_all(missing, mean):
                raise RoundGoneError(self._commit.round)
            due = {shard: started + step * self._distance(shard) for shard in missing}
            timed_out = polling.left_seconds <= 0
            for shard in [shard for shard in missing if timed_out or clock.monotonic() >= due[shard]]:
                log.warning("round=%d event=take-over shard=%d", self._commit.round, shard)
                self._make(shard, mean)
                missing.remove(shard)
            if missing:
                self._watch(missing, min(due[shard] for shard in missing), polling)
        return mean

    def _make_all(self, own: list[int], mean: Floats) -> None:
        """Make this process's own shards: one for most models, several in parallel for large ones."""
        if len(own) < 2:
            for shard in own:
                self._make(shard, mean)
            return
        # Separate threads: each of them waits for requests that run in the context's threads.
        with ThreadPoolExecutor(MADE_AT_ONCE, "reduce") as makers:
            for _ in makers.map(lambda shard: self._make(shard, mean), own):
                pass

    def _make(self, shard: int, mean: Floats) -> None:
        self._shards.make(shard, mean[self._shards.span(shard)])

    def _read_all(self, shards: list[int], mean: Floats) -> list[int]:
        """Fill in those of `shards` that are stored; returns the others."""
        found = self._context.side_by_side(
            lambda shard: self._shards.read(shard, mean[self._shards.span(shard)]), shards
        )
        for shard, look in zip(shards, found, strict=True):
            if look is Look.DAMAGED:
                self._shards.repair(shard, mean[self._shards.span(shard)])
        return [shard for shard, look in zip(shards, found, strict=True) if look is Look.MISSING]

    def _was_complete(self) -> bool:
        """Whether all shards existed once: a replica reads them all before it contributes to the next round."""
        return self._context.store.exists(keys.commit(self._commit.round + 1))

    def _watch(self, missing: list[int], until: float, polling: Polling) -> None:
        """Wait until one of `missing` exists, checking one at a time: owners finish at about the same time."""
        for shard in cycle(missing):
            polling.rest()
            late = polling.left_seconds <= 0 or self._context.clock.monotonic() >= until
            if late or self._shards.exists(shard):
                return

    def _distance(self, shard: int) -> int:
        """How many members take over `shard` before this process does; 0 for its owner.

        Ownership rotates by one member each round, so that with few shards the work does not always fall on the same
        members.
        """
        members = len(self._commit.members)
        return members if self._position is None else (self._position - shard - self._commit.round) % members


def _position(commit: Commit, member: Member) -> int | None:
    """The index of `member` among the commit's members, None if it is not one."""
    return commit.members.index(member) if member in commit.members else None
