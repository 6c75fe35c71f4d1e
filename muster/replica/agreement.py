"""Commit: from contributions in the bucket to one list of members that all obey."""

from __future__ import annotations

from typing import NoReturn

from muster.contract.commit import Commit, Member
from muster.replica.commits import now, read_commit, write_commit
from muster.replica.contribution import Contribution, Unusable, judge, read_contribution
from muster.replica.errors import DivergedError, RendezvousError
from muster.replica.meeting import Meeting, Patience, log
from muster.replica.roll_call import Decision, RollCall
from muster.replica.seat import Seat, check_seat, is_superseded

ROLL_SECONDS = 1.0
ROLL_SECONDS_MIN = 0.1


def agree(meeting: Meeting, seat: Seat, mine: Contribution, previous: Commit | None, patience: Patience) -> Commit:
    """Wait for the round's commit, or make it as soon as the roll allows. The first commit stands, whoever made it.

    Raises:
        FencedError, StoppedError
        RendezvousError: no quorum in time, or none possible any more.
        DivergedError: none possible any more because of this process's own contribution.
    """
    return _Agreement(meeting, seat, mine, previous).reach(patience)


class _Agreement:
    """One round, as one contributor sees it."""

    def __init__(self, meeting: Meeting, seat: Seat, mine: Contribution, previous: Commit | None) -> None:
        self._meeting = meeting
        self._seat = seat
        self._round = mine.round
        self._count = mine.header.count
        self._roll = RollCall(meeting.quorum, previous)
        self._roll.claimed(seat.rank, seat.epoch)
        self._note(seat.rank, judge(mine.header, len(mine.body), self._count))

    def reach(self, patience: Patience) -> Commit:
        """Call the roll once, then wait for the commit: whoever contributes last sees all and makes it at once.

        The roll is called again from time to time, for the case that the last one died or that some never come.
        """
        patience.reset()
        while True:
            commit = self._call_roll()
            again = self._meeting.clock.monotonic() + min(
                ROLL_SECONDS, max(self._meeting.quorum.grace_seconds, ROLL_SECONDS_MIN)
            )
            while commit is None and self._meeting.clock.monotonic() < again:
                patience.pause(self._what_is_missing)
                commit = read_commit(self._meeting, self._round)
            if commit is not None:
                return commit
            check_seat(self._meeting.store, self._seat)

    def _call_roll(self) -> Commit | None:
        self._look()
        decision = self._roll.decide(self._meeting.clock.monotonic())
        if decision is Decision.COMMIT and self._all_still_seated():
            return write_commit(self._meeting, self._proposal())
        if decision is Decision.HOPELESS:
            commit = read_commit(self._meeting, self._round)
            return self._give_up() if commit is None else commit
        return None

    def _look(self) -> None:
        """Look for whoever has not answered yet."""
        ranks = self._roll.open_ranks
        for rank, (epoch, answer) in zip(ranks, self._meeting.side_by_side(self._look_for, ranks), strict=True):
            self._roll.claimed(rank, epoch)
            if answer is not None:
                self._note(rank, answer)

    def _look_for(self, rank: int) -> tuple[int, Member | Unusable | None]:
        """The latest claim of `rank`, and what was given under it.

        A rank that is not expected was left out under the claim known of it, so it claims anew before it gives again.
        """
        epoch = self._roll.epochs[rank]
        if epoch and self._roll.is_expected(rank):
            answer = self._read(rank, epoch)
            if answer is not None:
                return epoch, answer
        known = epoch
        while is_superseded(self._meeting.store, rank, epoch):
            epoch += 1
        return epoch, self._read(rank, epoch) if epoch > known else None

    def _read(self, rank: int, epoch: int) -> Member | Unusable | None:
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

    def _proposal(self) -> Commit:
        return Commit(
            run=self._meeting.run,
            round=self._round,
            committed_at=now(),
            count=self._count,
            members=self._roll.members,
            excluded=self._roll.exclusions,
            epochs=tuple(self._roll.epochs),
        )

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
