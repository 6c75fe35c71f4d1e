"""Which objects are kept and which are deleted.

Claims, commits, amendments and manifests are kept: they are small, and a key that was created once must stay, or a
process that was suspended could create it again. Objects with data are deleted once a complete state covers them (a
snapshot, or a state of torchft's algorithms): contributions and reduced shards up to the state's round, and older
states. A reader whose round is deleted continues from that state. Of the shards, those without values stay: each says
that its revision of the round was amended, and decides that as a commit does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from muster.contract.run.commit import HOME, Commit
from muster.replica.rounds.reduced_shards import most_shards
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.store.transport import Store, StoreDeniedError, StoreUnavailableError
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES


class States(Protocol):
    """The stored states from which a process can continue after its rounds were deleted."""

    @property
    def context(self) -> RoundContext:
        """The rendezvous that holds them."""

    def rounds(self, last: int) -> Iterable[int]:
        """The rounds from 1 on that may have a state, from `last` down."""

    def is_complete(self, round_: int, *, complete: bool) -> bool:
        """Whether the state of a round is complete. With `complete`, completes it if possible."""

    def shards(self, round_: int) -> int:
        """The number of shards of a round's state."""

    def folder(self, shard: int) -> str:
        """The folder of that shard of all states; keys sort by round."""


def horizon(commit: Commit, complete: Iterable[int]) -> int:
    """The round up to which data may be deleted, 0 for none.

    A rank named in a commit has applied all rounds before it. If the commit names every rank that was ever claimed, no
    replica is behind the newest complete state. Otherwise one is dead or late, and the rounds since the second-newest
    state are kept for it: a whole interval. A replica that comes later than that continues from a state.

    Args:
        commit: of the round just applied.
        complete: earlier rounds with a complete state, newest first.
    """
    rounds = iter(complete)
    newest = next(rounds, 0)
    all_present = all(commit.names(rank) for rank, epoch in enumerate(commit.epochs) if epoch)
    return newest if all_present else next(rounds, 0)


class Keeper:
    """One process's housekeeping: it completes the newest state when it is the round's keeper (the members take turns),
    and deletes data in its share of the folders (one per rank and shard) when the horizon moves.
    """

    def __init__(self, states: States, rank: int) -> None:
        self._states = states
        self.rank = rank
        self._complete: set[int] = set()
        self._swept = 0
        self._reduced = 0  # the most shards that a mean may have had: fragments differ in size

    def keep(self, commit: Commit) -> None:
        """Complete the newest state if this process is the round's keeper; delete data that no replica needs."""
        members = [member.rank for member in commit.keepers]
        is_keeper = members[commit.round % len(members)] == self.rank
        replicas = len(commit.epochs)
        self._reduced = max(self._reduced, most_shards(commit, self._states.context.codec, replicas))
        rounds = self._states.rounds(commit.round - 1)
        limit = horizon(commit, (round_ for round_ in rounds if self._is_complete(round_, is_keeper)))
        if limit <= self._swept:
            return
        self._swept = limit
        self._complete = {round_ for round_ in self._complete if round_ >= limit}
        most = max(replicas, self._states.shards(limit), self._reduced)
        near = [member.rank for member in commit.members if member.place == self._states.context.place]
        try:
            if self.rank in members:
                self._sweep(limit, range(members.index(self.rank), most, len(members)))
            # A former process of this rank, whose contribution counts, may have been at another place.
            if self._states.context.place != HOME and self.rank in near:
                self._sweep_near(limit, range(near.index(self.rank), most, len(near)))
        except (StoreDeniedError, StoreUnavailableError) as error:
            # No replica needs what is left: the next sweep or the bucket's lifecycle rule deletes it.
            log.warning("round=%d event=not-swept reason=%r", limit, str(error))

    def _is_complete(self, round_: int, is_keeper: bool) -> bool:
        if round_ not in self._complete and self._states.is_complete(round_, complete=is_keeper):
            self._complete.add(round_)
        return round_ in self._complete

    def _sweep(self, limit: int, places: range) -> None:
        """Delete everything up to `limit` in `places`. If members see the horizon move in different rounds, a place may
        be skipped: the next sweep lists it from its start.
        """
        ends = [*_ends_of_rounds(limit, places), *((self._states.folder(place), limit) for place in places)]
        if self._states.context.places is not None:
            ends += [(rendezvous_keys.sums_of(place), limit + 1) for place in places]
        self._delete(self._states.context.store, limit, ends)

    def _sweep_near(self, limit: int, places: range) -> None:
        """As `_sweep`, in the bucket of this process's place, which has no state."""
        self._delete(self._states.context.values, limit, _ends_of_rounds(limit, places))

    def _delete(self, store: Store, limit: int, ends: list[tuple[str, int]]) -> None:
        context = self._states.context
        found = context.side_by_side(lambda end: _disposable(store, *end), ends)
        gone = [key for listed in found for key in listed]
        store.delete(gone)
        log.info("round=%d event=swept objects=%d", limit, len(gone))


def _disposable(store: Store, folder: str, end: int) -> list[str]:
    """The keys of `folder` before round `end`, without statements: their size shows them."""
    over = HEADER_BYTES if folder.startswith(rendezvous_keys.REDUCED) else -1
    return store.keys(folder, rendezvous_keys.before(folder, end), over)


def _ends_of_rounds(limit: int, places: range) -> list[tuple[str, int]]:
    """The folders of contributions and means, and the rounds before which they are emptied."""
    folders = (rendezvous_keys.contributions_of, rendezvous_keys.reduced_of)
    return [(folder(place), limit + 1) for place in places for folder in folders]
