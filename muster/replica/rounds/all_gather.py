"""Gather alone: where contributions are small beside their mean, every replica reads them all and averages them itself.

No shard of the mean is stored. Each replica finds for itself whether the contributions can be used, and reads all but
its own, which it has in its memory. All must take the same ones for unusable. So two *verdicts* decide, each about a
part of the contributions: one about a member's, which changes from round to round, one about all others. That member
states the latter and the next member the former, or whoever has read the data if they are late; the first to be stored
counts. A replica applies the mean once both say that all are usable, and amends the commit if one of them does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from muster.contract.run.commit import Commit, Exclusion
from muster.replica.codecs.base import Payload
from muster.replica.free_memory import pages
from muster.replica.parts.link import by_first
from muster.replica.replica_errors import RendezvousError
from muster.replica.rounds.commit_store import stored_document
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.reduced_shards import shards_of
from muster.replica.rounds.reduction import TAKEOVER_FACTOR, Reduction
from muster.replica.rounds.round_context import Polling, RoundContext, log
from muster.replica.rounds.weighted_mean import WeightedMean, in_both, records_range, values_of
from muster.replica.store.read_ahead import ByteRange
from muster.replica.store.transport import create_once
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.headers import Verdict

# Who takes over reads all contributions once more, and members learn of a commit up to a second apart.
PATIENCE = 4.0

_OTHERS, _ONE = _PARTS = (0, 1)


def gathers(blocks: Blocks, members: int) -> bool:
    """Whether a replica sends and receives fewer bytes in a round if it reads all contributions, cut into `blocks`.

    Not with a codec whose mean is as small as a contribution: with two members that would save a fifth, but who replays
    rounds would read twice as much.
    """
    codec = blocks.codec.for_mean(members)
    if codec.label == blocks.codec.label:
        return False
    given, mean = (cut.number * cut.record_bytes for cut in (blocks, Blocks(blocks.count, codec, blocks.exact)))
    # Of all members: each sends its contribution, and reads that of each other one. A single member reads its own.
    gathered = given * members * max(2, members)
    shared = given * (2 * members - 1) + mean * members
    return gathered < shared


def gathered_ranges(context: RoundContext, commit: Commit, rank: int, size: int) -> Iterator[ByteRange]:
    """What process `rank` of `size` of a replica that has no part in the round asks the store for, but verdicts."""
    blocks = Blocks(commit.count, context.codec, commit.exact)
    held = blocks.shard(rank, size)
    for piece in range(shards_of(commit, context.codec)):
        which = in_both(held, blocks.shard(piece, shards_of(commit, context.codec)))
        for member in commit.members:
            for _, key, stored in values_of(context, commit.round, member, blocks):
                if found := in_both(stored, which):
                    yield records_range(blocks, key, stored, found)


class AllGather(Reduction):
    """One revision of one round whose contributions this process reads, in as many pieces as a mean has shards."""

    def __init__(
        self, context: RoundContext, commit: Commit, mine: Contribution | None, own: Contribution | None
    ) -> None:
        """As `Reduction`."""
        super().__init__(context, commit, mine, own)
        self._blocks = Blocks(commit.count, context.codec, commit.exact)
        self._one = commit.makers[commit.round % len(commit.makers)].rank
        given = None if own is None else (own.header.member.rank, own.header.member.epoch)
        self._unread = next((member.rank for member in commit.members if (member.rank, member.epoch) == given), None)

    def gather(self, polling: Polling) -> None:
        """Average what this process holds.

        Raises:
            Rejection: it cannot decode some contributions.
            RoundGoneError: they are deleted.
        """
        clock = self._context.clock
        started = clock.monotonic()
        self._make_all([piece for piece in range(self._shards.number) if self._needs(piece)])
        self._started = clock.monotonic()
        self._step = max(PATIENCE * self._floor, TAKEOVER_FACTOR * (self._started - started))
        polling.reset()

    def _make(self, shard: int, room: Callable[[int], Payload] = pages) -> None:  # noqa: ARG002 - no object is made
        link, blocks = self._context.link, self._blocks
        which = in_both(blocks.shard(link.rank, link.size), blocks.shard(shard, self._shards.number))
        first, put = self._shards.span(shard).start, self._sink(shard)
        mean = WeightedMean(self._context, self._commit, which, self._own)
        for run, values in zip(blocks.pieces(which), mean.runs(), strict=True):
            span = blocks.span(run)
            put(slice(span.start - first, span.stop - first), values)

    def settled(self, rejected: tuple[Exclusion, ...], polling: Polling) -> tuple[Exclusion, ...] | None:
        """What the verdicts say, given what this replica has found.

        None: a verdict is late, and this process can state it once it has read its own contribution from the store.

        Raises:
            StoppedError
            RendezvousError: others can decode what this replica cannot.
        """
        return by_first(self._context.link, partial(self._settled, rejected, polling))

    def _settled(self, rejected: tuple[Exclusion, ...], polling: Polling) -> tuple[Exclusion, ...] | None:
        found = {part: tuple(item for item in rejected if self._part(item.rank) == part) for part in _PARTS}
        unread = None if self._unread is None else self._part(self._unread)
        verdicts: dict[int, Verdict] = {}
        while True:
            is_over = polling.left_seconds <= 0
            due = {part for part in _PARTS if (bool(found[part]) if rejected else is_over or self._is_due(part))}
            for part in due - verdicts.keys():
                if part != unread or found[part]:
                    self._state(part, found[part], verdicts)
            missing = [part for part in _PARTS if part not in verdicts]
            looks = self._context.side_by_side(self._stated, missing)
            verdicts |= {part: verdict for part, verdict in zip(missing, looks, strict=True) if verdict is not None}
            if stated := tuple(item for verdict in verdicts.values() for item in verdict.rejected):
                return stated
            if rejected:
                # The verdicts about these are there, and say otherwise.
                reasons = "; ".join(f"rank {item.rank}: {item.reason}" for item in rejected)
                uri = self._context.store.uri(rendezvous_keys.CONTRIBUTIONS)
                message = f"What others have read below {uri} is damaged ({reasons})."
                raise RendezvousError(message)
            if len(verdicts) == len(_PARTS):
                return ()
            if unread in due - verdicts.keys():
                if self._distance(unread):
                    log.warning("round=%d event=late-verdict part=%d", self._commit.round, unread)
                return None
            polling.rest()

    def _part(self, rank: int) -> int:
        """Which verdict is about the contribution of `rank`."""
        return _ONE if rank == self._one else _OTHERS

    def _state(self, part: int, rejected: tuple[Exclusion, ...], verdicts: dict[int, Verdict]) -> None:
        """Store a verdict, unless there is one."""
        commit = self._commit
        verdict = Verdict(run=commit.run, round=commit.round, revision=commit.revision, rejected=rejected)
        if create_once(self._context.store, self._key(part), verdict.to_json()):
            verdicts[part] = verdict

    def _stated(self, part: int) -> Verdict | None:
        return stored_document(self._context.store, self._key(part), Verdict)

    def _key(self, part: int) -> str:
        return rendezvous_keys.verdict(self._commit.round, self._commit.revision, part)
