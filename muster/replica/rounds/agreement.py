"""Commit: from contributions in the bucket to one list of members that all obey."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NoReturn

from muster.contract.run.commit import Commit, Member
from muster.replica.errors import DivergedError, RendezvousError
from muster.replica.rounds.claims import Seat, check_seat, is_superseded
from muster.replica.rounds.commits import read_commit, write_commit
from muster.replica.rounds.contribution import Contribution, Received, Unusable, judge, read_contribution
from muster.replica.rounds.grace import grace_window
from muster.replica.rounds.quorum import Decision, RollCall
from muster.replica.rounds.round_context import Meeting, Patience, log
from muster.replica.store.transport import ObjectMissingError

ROLL_SECONDS = 1.0
ROLL_SECONDS_MIN = 0.1


def agree(meeting: Meeting, seat: Seat, mine: Contribution, recent: Sequence[Commit], patience: Patience) -> Commit:
    """Wait for the round's commit, or make it as soon as the roll allows. The first commit stands, whoever made it.

    Args:
        recent: the commits of the rounds before, oldest first: who is expected, and how long to wait for them.

    Raises:
        FencedError, StoppedError
        RendezvousError: no quorum in time, or none possible any more.
        DivergedError: none possible any more because of this process's own contribution.
    """
    return _Agreement(meeting, seat, mine, recent).reach(patience)


class _Agreement:
    """One round, as one contributor sees it."""

    def __init__(self, meeting: Meeting, seat: Seat, mine: Contribution, recent: Sequence[Commit]) -> None:
        self._meeting = meeting
        self._seat = seat
        self._mine = mine
        self._round = mine.round
        self._count = mine.header.count
        quorum = meeting.quorum
        grace = grace_window(quorum.grace_seconds, quorum.min_participants, recent)
        self._previous = recent[-1] if recent else None
        self._roll = RollCall(quorum, grace, self._previous)
        self._arrived: dict[int, float] = {}
        self._contributed_at = meeting.clock.monotonic()
        self._roll.claimed(seat.rank, seat.epoch)
        self._note(seat.rank, judge(mine.header, len(mine.body), self._count, meeting.codec))

    def reach(self, patience: Patience) -> Commit:
        """Call the roll once, then wait for the commit: whoever contributes last sees all and makes it at once.

        The roll is called again from time to time, for the case that the last one died or that some never come.
        """
        clock = self._meeting.clock
        patience.reset()
        while True:
            last_call = patience.left_seconds <= 0
            commit = self._call_roll(last_call)
            if commit is None and last_call:
                commit = read_commit(self._meeting, self._round)
            now = clock.monotonic()
            again = max(now + ROLL_SECONDS_MIN, min(now + ROLL_SECONDS, self._roll.closes_at))
            while commit is None and clock.monotonic() < again and (last_call or patience.left_seconds > 0):
                patience.pause(self._what_is_missing)
                commit = read_commit(self._meeting, self._round)
            if commit is not None:
                return commit
            check_seat(self._meeting.store, self._seat)

    def _call_roll(self, last_call: bool) -> Commit | None:
        self._look()
        decision = self._roll.decide(self._meeting.clock.monotonic(), last_call=last_call)
        if decision is Decision.COMMIT and self._all_still_seated():
            proposal = self._proposal()
            return (
                read_commit(self._meeting, self._round) if proposal is None else write_commit(self._meeting, proposal)
            )
        if decision is Decision.HOPELESS:
            commit = read_commit(self._meeting, self._round)
            return self._give_up() if commit is None else commit
        return None

    def _look(self) -> None:
        """Look for whoever has not answered yet."""
        ranks = self._roll.open_ranks
        for rank, (epoch, received) in zip(ranks, self._meeting.side_by_side(self._look_for, ranks), strict=True):
            self._roll.claimed(rank, epoch)
            if received is not None:
                self._arrived[rank] = received.at
                self._note(rank, received.answer)

    def _look_for(self, rank: int) -> tuple[int, Received | None]:
        """The latest claim of `rank`, and what was given under it.

        A rank that is not expected was left out under the claim known of it, so it claims anew before it gives again.
        """
        epoch = self._roll.epochs[rank]
        if epoch and self._roll.is_expected(rank):
            received = self._read(rank, epoch)
            if received is not None:
                return epoch, received
        known = epoch
        while is_superseded(self._meeting.store, rank, epoch):
            epoch += 1
        return epoch, self._read(rank, epoch) if epoch > known else None

    def _read(self, rank: int, epoch: int) -> Received | None:
        return read_contribution(self._meeting, self._round, rank, epoch, count=self._count)

    def _note(self, rank: int, answer: Member | Unusable) -> None:
        if isinstance(answer, Unusable):
            log.warning("round=%d event=excluded rank=%d reason=%r", self._round, rank, answer.reason)
            self._roll.exclude(rank, answer.reason)
        else:
            self._roll.contributed(answer)

    def _all_still_seated(self) -> bool:
        """Whether every member still holds its rank: what a superseded process gave must not be committed."""
        check_seat(self._meeting.store, self._seat)
        others = [member for member in self._roll.members if member.rank != self._seat.rank]
        gone = self._meeting.side_by_side(
            lambda member: is_superseded(self._meeting.store, member.rank, member.epoch), others
        )
        for member, superseded in zip(others, gone, strict=True):
            if superseded:
                self._roll.claimed(member.rank, member.epoch + 1)
        return not any(gone)

    def _proposal(self) -> Commit | None:
        """The commit that this process would make; None when it slept until the round was over and deleted."""
        members = self._roll.members
        try:
            self._arrived[self._seat.rank] = self._meeting.store.read(self._mine.key, 0, 1).created_at
        except ObjectMissingError:
            return None
        arrivals = sorted(self._arrived[member.rank] for member in members)
        return Commit(
            run=self._meeting.run,
            round=self._round,
            committed_at=datetime.fromtimestamp(self._store_time(), UTC).isoformat(timespec="milliseconds"),
            count=self._count,
            members=members,
            excluded=self._roll.exclusions,
            excluded_before=() if self._previous is None else self._previous.excluded,
            excluded_total=len(self._roll.exclusions)
            + (0 if self._previous is None else self._previous.excluded_total),
            absent=self._roll.absent,
            arrivals=tuple(round(at - arrivals[0], 3) for at in arrivals),
            grace_seconds=round(self._roll.grace_seconds, 3),
            epochs=tuple(self._roll.epochs),
        )

    def _store_time(self) -> float:
        """What the store's clock shows by now: when this process's contribution came, and the time since then."""
        return self._arrived[self._seat.rank] + self._meeting.clock.monotonic() - self._contributed_at

    def _give_up(self) -> NoReturn:
        excluded = self._roll.exclusions
        reasons = "; ".join(f"rank {item.rank}: {item.reason}" for item in excluded)
        least = self._meeting.quorum.min_participants
        message = f"Round {self._round} cannot have {least} participants any more ({reasons})."
        own = any(item.rank == self._seat.rank for item in excluded)
        raise DivergedError(message) if own else RendezvousError(message)

    def _what_is_missing(self) -> str:
        ranks = ", ".join(str(rank) for rank in self._roll.open_ranks)
        present, least = len(self._roll.members), self._meeting.quorum.min_participants
        return f"round {self._round} has {present} of at least {least} participants; nothing came from rank {ranks}."
