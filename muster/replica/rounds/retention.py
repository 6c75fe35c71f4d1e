"""What is kept and what is deleted.

What decides is kept for ever: claims, commits, amendments and manifests are small, and a key that was taken once must
stay taken, or a process that slept could take it again. What carries data goes once a complete state covers it (a
snapshot, or what torchft's algorithms hold): contributions and reduced shards up to the state's round, and the states
before it. A reader that finds its round gone goes on from that state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from muster.contract.run.commit import Commit
from muster.replica.rounds.round_context import Meeting, log
from muster.replica.store.transport import StoreDeniedError, StoreUnavailableError
from muster.replica.wire import keys


class States(Protocol):
    """What a process goes on from whose rounds are deleted."""

    @property
    def meeting(self) -> Meeting:
        """Where they lie."""

    def rounds(self, last: int) -> Iterable[int]:
        """The rounds after the beginning of which there may be a state, from `last` down."""

    def is_complete(self, round_: int, *, complete: bool) -> bool:
        """Whether all of the state of a round is there; if asked to `complete` it, do what is left to be done."""

    def shards(self, round_: int) -> int:
        """Into how many shards the state of a round is cut."""

    def folder(self, shard: int) -> str:
        """Where that shard of all states lies, by round."""


def horizon(commit: Commit, complete: Iterable[int]) -> int:
    """The round up to which data may go, 0 for none.

    Who is named in a commit has applied all rounds before it. If every rank that was ever seated is, nobody is behind
    the newest complete state. Otherwise somebody is dead or late, and the rounds since the state before that one stay
    for it: a whole interval. Who comes later than that goes on from a state.

    Args:
        commit: of the round now applied.
        complete: rounds before it of which there is a complete state, newest first.
    """
    rounds = iter(complete)
    newest = next(rounds, 0)
    everybody = all(commit.names(rank) for rank, epoch in enumerate(commit.epochs) if epoch)
    return newest if everybody else next(rounds, 0)


class Keeper:
    """The housekeeping of one process: of the newest state in one round of so many as there are members, and of its
    share of the places (ranks and shards) whenever the horizon moves.
    """

    def __init__(self, states: States, rank: int) -> None:
        self._states = states
        self._rank = rank
        self._complete: set[int] = set()
        self._swept = 0

    def keep(self, commit: Commit) -> None:
        """Complete the newest state if that can be and it is this one's turn; delete what no one needs."""
        members = [member.rank for member in commit.members]
        position = members.index(self._rank)
        turn = commit.round % len(members) == position
        rounds = self._states.rounds(commit.round - 1)
        limit = horizon(commit, (round_ for round_ in rounds if self._is_complete(round_, turn)))
        if limit <= self._swept:
            return
        self._swept = limit
        self._complete = {round_ for round_ in self._complete if round_ >= limit}
        places = range(position, max(len(commit.epochs), self._states.shards(limit)), len(members))
        try:
            self._sweep(limit, places)
        except (StoreDeniedError, StoreUnavailableError) as error:
            # Nobody needs what is left: the next sweep or the bucket's lifecycle rule takes it along.
            log.warning("round=%d event=not-swept reason=%r", limit, str(error))

    def _is_complete(self, round_: int, turn: bool) -> bool:
        if round_ not in self._complete and self._states.is_complete(round_, complete=turn):
            self._complete.add(round_)
        return round_ in self._complete

    def _sweep(self, limit: int, places: range) -> None:
        """Delete everything up to `limit` in `places`, whoever left it there. Where members saw the horizon move in
        different rounds, with other members, a place may be passed over: the next sweep begins where it begins.
        """
        meeting = self._states.meeting
        ends = [
            end
            for place in places
            for end in (
                (keys.contributions_of(place), limit + 1),
                (keys.reduced_of(place), limit + 1),
                (self._states.folder(place), limit),
            )
        ]
        found = meeting.side_by_side(lambda end: meeting.store.keys(end[0], keys.before(*end)), ends)
        gone = [key for listed in found for key in listed]
        meeting.store.delete(gone)
        log.info("round=%d event=swept objects=%d", limit, len(gone))
