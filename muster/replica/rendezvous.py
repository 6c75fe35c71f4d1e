"""Where replicas meet: join the run's history, then advance round by round. One object per process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.contract.commit import Commit
from muster.replica.agreement import agree
from muster.replica.codec import Floats
from muster.replica.commits import read_commit
from muster.replica.contribution import Contribution, contribute, make_contribution
from muster.replica.errors import ParametersError
from muster.replica.history import STATE_EVERY_ROUNDS, last_committed, latest_state, store_state
from muster.replica.meeting import Meeting, log
from muster.replica.outer import GlobalState, Nesterov
from muster.replica.packing import Packing
from muster.replica.reduction import reduced_mean
from muster.replica.seat import Seat, renew_seat, take_seat


@dataclass(frozen=True)
class Outcome:
    """How a round went: who took part in it, and whether this rank did."""

    round: int
    participants: tuple[int, ...]
    took_part: bool


@dataclass(frozen=True)
class Training:
    """What a process trains: its arrays' packing, the outer optimizer, and the global state, which advances."""

    packing: Packing
    outer: Nesterov
    state: GlobalState


class Rendezvous:
    """This process's place among the replicas."""

    def __init__(self, meeting: Meeting, seat: Seat, metrics: Callable[[], dict[str, float]]) -> None:
        """`metrics` gives the latest value of each metric: it goes along with every contribution."""
        self._meeting = meeting
        self._seat = seat
        self._metrics = metrics
        self._previous: Commit | None = None
        self._training: Training | None = None

    @classmethod
    def open(cls, meeting: Meeting, rank: int, attempt: int, metrics: Callable[[], dict[str, float]]) -> Rendezvous:
        """Take the seat of `rank`; every process that held it before is fenced from now on.

        Raises:
            FencedError: a newer attempt holds it.
        """
        last = last_committed(meeting.store)
        commit = read_commit(meeting, last) if last else None
        known = 0 if commit is None else commit.epochs[rank]
        seat = take_seat(meeting.store, meeting.run, rank, attempt, known)
        log.info("event=seated rank=%d attempt=%d incarnation=%d epoch=%d", rank, attempt, seat.incarnation, seat.epoch)
        return cls(meeting, seat, metrics)

    @property
    def rank(self) -> int:
        """This replica's rank."""
        return self._seat.rank

    @property
    def incarnation(self) -> int:
        """Which process of its attempt this is, counted from 1."""
        return self._seat.incarnation

    @property
    def world_size(self) -> int:
        """How many replicas the run has."""
        return self._meeting.quorum.replicas

    @property
    def training(self) -> Training | None:
        """What is trained, with the state reached; None until `join`."""
        return self._training

    def join(self, packing: Packing, outer: Nesterov) -> Training:
        """Come to the state after the last committed round: the run's beginning or a stored state, then replay.

        Raises:
            ParametersError: another model than the run's, or joined already.
            FencedError, StoppedError, RendezvousError
        """
        if self._training is not None:
            message = "A process joins the rendezvous once, with all its parameters in one DiLoCo."
            raise ParametersError(message)
        store = self._meeting.store
        state = latest_state(store, self._meeting.run, packing, last_committed(store))
        began = state.round
        if began:
            self._previous = read_commit(self._meeting, began)
        training = self._training = Training(packing, outer, state)
        self._catch_up(training)
        log.info("event=joined round=%d replayed=%d", state.round, state.round - began)
        return training

    def advance(self, training: Training, gradient: Floats, weight: float) -> Outcome:
        """Give `gradient` to the next round and apply the round's mean; blocks until then.

        A straggler whom the others left out applies all rounds that they made meanwhile, drops its own local progress
        and reports back, so that it is waited for in the round after.

        Raises:
            FencedError, StoppedError, RendezvousError, DivergedError
        """
        patience = self._meeting.patience()
        round_ = training.state.round + 1
        mine: Contribution | None = None
        commit = read_commit(self._meeting, round_)
        if commit is None:
            mine = make_contribution(
                self._meeting.run, self._seat, round_, gradient, weight=weight, metrics=self._metrics()
            )
            contribute(self._meeting, self._seat, mine)
            commit = agree(self._meeting, self._seat, mine, self._previous, patience)
        commit, mean = reduced_mean(self._meeting, commit, mine, patience)
        self._apply(training, commit, mean)
        members = tuple(member.rank for member in commit.members)
        if not commit.names(self.rank):
            self._catch_up(training)
            self._seat = renew_seat(self._meeting.store, self._meeting.run, self._seat)
            log.warning("round=%d event=left-out now=%d", round_, training.state.round)
        return Outcome(round_, members, self.rank in members)

    def _catch_up(self, training: Training) -> None:
        while (commit := read_commit(self._meeting, training.state.round + 1)) is not None:
            commit, mean = reduced_mean(self._meeting, commit, None, self._meeting.patience())
            self._apply(training, commit, mean)

    def _apply(self, training: Training, commit: Commit, mean: Floats) -> None:
        state = training.state
        training.outer.step(state, mean)
        self._previous = commit
        keeper = commit.members[state.round // STATE_EVERY_ROUNDS % len(commit.members)]
        if state.round % STATE_EVERY_ROUNDS == 0 and keeper.rank == self.rank:
            store_state(self._meeting.store, self._meeting.run, training.packing, state)
