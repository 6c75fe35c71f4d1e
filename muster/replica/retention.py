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
    """The housekeeping of one process: of the snapshot in one round of so many as there are members, and of its share
    of the places (ranks and shards) whenever the horizon moves.
    """

    def __init__(self, snapshots: Snapshots, rank: int) -> None:
        self._snapshots = snapshots
        self._rank = rank
        self._complete: set[int] = set()
        self._swept = 0

    def keep(self, commit: Commit) -> None:
        """Seal the newest snapshot if all of it is there and it is this one's turn; delete what no one needs."""
        members = [member.rank for member in commit.members]
        position = members.index(self._rank)
        turn = commit.round % len(members) == position
        limit = horizon(commit, (round_ for round_ in self._rounds(commit) if self._is_complete(round_, turn)))
        if limit <= self._swept:
            return
        self._swept = limit
        self._complete = {round_ for round_ in self._complete if round_ >= limit}
        places = range(position, max(len(commit.epochs), self._snapshots.shards(limit)), len(members))
        try:
            self._sweep(limit, places)
        except (StoreDeniedError, StoreUnavailableError) as error:
            # Nobody needs what is left: the next sweep or the bucket's lifecycle rule takes it along.
            log.warning("round=%d event=not-swept reason=%r", limit, str(error))

    def _rounds(self, commit: Commit) -> range:
        return snapshot_rounds(self._snapshots, commit.round - 1, after=0)

    def _is_complete(self, round_: int, turn: bool) -> bool:
        if round_ not in self._complete:
            if not self._snapshots.is_sealed(round_):
                if not turn or self._snapshots.missing(round_):
                    return False
                self._snapshots.seal(round_)
                log.info("round=%d event=snapshot shards=%d", round_, self._snapshots.shards(round_))
            self._complete.add(round_)
        return True

    def _sweep(self, limit: int, places: range) -> None:
        """Delete everything up to `limit` in `places`, whoever left it there. Where members saw the horizon move in
        different rounds, with other members, a place may be passed over: the next sweep begins where it begins.
        """
        meeting = self._snapshots.meeting
        ends = [
            end
            for place in places
            for end in (
                (keys.contributions_of(place), limit + 1),
                (keys.reduced_of(place), limit + 1),
                (keys.snapshots_of(place), limit),
            )
        ]
        found = meeting.side_by_side(lambda end: meeting.store.keys(end[0], keys.before(*end)), ends)
        gone = [key for listed in found for key in listed]
        meeting.store.delete(gone)
        log.info("round=%d event=swept objects=%d", limit, len(gone))
