"""What is kept and what is deleted.

What decides is kept for ever: claims, commits, amendments and manifests are small, and a key that was taken once must
stay taken, or a process that slept could take it again. What carries data goes once a complete snapshot covers it:
contributions and reduced shards up to the snapshot's round, and the snapshots before it. A reader that finds its round
gone goes on from that snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.contract.commit import Commit
from muster.replica import keys
from muster.replica.history import snapshot_rounds
from muster.replica.meeting import log
from muster.replica.snapshots import Snapshots
from muster.replica.transport import StoreDeniedError, StoreUnavailableError


def horizon(commit: Commit, complete: Iterable[int]) -> int:
    """The round up to which data may go, 0 for none.

    Who is named in a commit has applied all rounds before it. If every rank that was ever seated is, nobody is behind
    the newest complete snapshot. Otherwise somebody is dead or late, and the rounds since the snapshot before that
    one stay for it: a whole interval. Who comes later than that goes on from a snapshot.

    Args:
        commit: of the round now applied.
        complete: rounds before it of which there is a complete snapshot, newest first.
    """
    rounds = iter(complete)
    newest = next(rounds, 0)
    everybody = all(commit.names(rank) for rank, epoch in enumerate(commit.epochs) if epoch)
    return newest if everybody else next(rounds, 0)


class Keeper:
    """The housekeeping of one process. In every round one member, each in its turn, is to do it."""

    def __init__(self, snapshots: Snapshots, rank: int) -> None:
        self._snapshots = snapshots
        self._rank = rank
        self._swept = 0

    def keep(self, commit: Commit) -> None:
        """Seal the newest snapshot if all of it is there, and delete what no one needs, if it is this one's turn."""
        if commit.members[commit.round % len(commit.members)].rank != self._rank:
            return
        limit = horizon(commit, (round_ for round_ in self._rounds(commit) if self._is_complete(round_)))
        if limit <= self._swept:
            return
        self._swept = limit
        try:
            self._sweep(limit)
        except (StoreDeniedError, StoreUnavailableError) as error:
            # Nobody needs what is left: the next sweep or the bucket's lifecycle rule takes it along.
            log.warning("round=%d event=not-swept reason=%r", limit, str(error))

    def _rounds(self, commit: Commit) -> range:
        return snapshot_rounds(self._snapshots, commit.round - 1, after=0)

    def _is_complete(self, round_: int) -> bool:
        if self._snapshots.is_sealed(round_):
            return True
        if self._snapshots.missing(round_):
            return False
        self._snapshots.seal(round_)
        log.info("round=%d event=snapshot shards=%d", round_, self._snapshots.shards(round_))
        return True

    def _sweep(self, limit: int) -> None:
        """Delete everything up to `limit`, whoever left it there. Contributions first: what can still be read of a
        round that goes is what was averaged, or nothing.
        """
        store = self._snapshots.meeting.store
        found = [
            *store.keys(keys.CONTRIBUTIONS, keys.contributions(limit + 1)),
            *store.keys(keys.REDUCED, keys.reduced_shards(limit + 1)),
            *store.keys(keys.SNAPSHOTS, keys.snapshot_shards(limit)),
        ]
        store.delete(found)
        log.info("round=%d event=swept objects=%d", limit, len(found))
