"""Where replicas meet: join the run's history, then advance round by round. One object per process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from muster.contract.commit import Commit
from muster.replica.agreement import agree
from muster.replica.background import Background
from muster.replica.codec import Floats
from muster.replica.commits import read_commit
from muster.replica.contribution import Contribution, contribute, make_contribution
from muster.replica.errors import ParametersError
from muster.replica.exchange import Exchange
from muster.replica.grace import ROUNDS_SEEN
from muster.replica.history import STATE_EVERY_ROUNDS, last_committed, latest_state, store_state
from muster.replica.meeting import Meeting, Patience, log
from muster.replica.outer import GlobalState, Outer
from muster.replica.packing import Packing
from muster.replica.reduction import reduced_mean
from muster.replica.seat import Seat, renew_seat, take_seat


@dataclass(frozen=True)
class Training:
    """What a process trains: its arrays' packing, what is done with a mean, and the global state, which advances."""

    packing: Packing
    outer: Outer
    state: GlobalState
    exchanges: Background[Exchange] = field(default_factory=Background)


class Rendezvous:
    """This process's place among the replicas."""

    def __init__(self, meeting: Meeting, seat: Seat, metrics: Callable[[], dict[str, float]]) -> None:
        """`metrics` gives the latest value of each metric: it goes along with every contribution."""
        self._meeting = meeting
        self._seat = seat
        self._metrics = metrics
        self._recent: deque[Commit] = deque(maxlen=ROUNDS_SEEN)
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

    def join(self, packing: Packing, outer: Outer) -> Training:
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
        if began and (commit := read_commit(self._meeting, began)) is not None:
            self._recent.append(commit)
        training = self._training = Training(packing, outer, state)
        self._catch_up(training)
        log.info("event=joined round=%d replayed=%d", state.round, state.round - began)
        return training

    def exchange(self, round_: int, gradient: Floats, weight: float) -> Exchange:
        """Give `gradient` to `round_`, the one after the last that this process saw; blocks until its mean is known.

        Nothing is applied to any state. May run in a thread of its own, one exchange at a time.

        Raises:
            FencedError, StoppedError, RendezvousError, DivergedError
        """
        patience = self._meeting.patience()
        mine: Contribution | None = None
        commit = read_commit(self._meeting, round_)
        if commit is None:
            mine = make_contribution(
                self._meeting.run, self._seat, round_, gradient, weight=weight, metrics=self._metrics()
            )
            contribute(self._meeting, self._seat, mine)
            commit = agree(self._meeting, self._seat, mine, tuple(self._recent), patience)
        return self._exchanged(commit, mine, patience)

    def committed(self, round_: int) -> Exchange | None:
        """What `round_` came to, for those who did not give to it; None while it is not committed."""
        commit = read_commit(self._meeting, round_)
        return None if commit is None else self._exchanged(commit, None, self._meeting.patience())

    def report_back(self) -> None:
        """Tell the others, who went on without this process, that it is to be waited for again.

        Raises:
            FencedError: somebody else has claimed the rank since.
        """
        self._seat = renew_seat(self._meeting.store, self._meeting.run, self._seat)

    def advance(self, training: Training, gradient: Floats, weight: float) -> Exchange:
        """Give `gradient` to the next round and apply the round's mean; blocks until then.

        A straggler whom the others left out applies all rounds that they made meanwhile, drops its own local progress
        and reports back, so that it is waited for in the round after.

        Raises:
            FencedError, StoppedError, RendezvousError, DivergedError
        """
        exchange = self.exchange(training.state.round + 1, gradient, weight)
        self._apply(training, exchange)
        if not exchange.commit.names(self.rank):
            self._catch_up(training)
            self.report_back()
            log.warning("round=%d event=left-out now=%d", exchange.commit.round, training.state.round)
        return exchange

    def _exchanged(self, commit: Commit, mine: Contribution | None, patience: Patience) -> Exchange:
        commit, mean = reduced_mean(self._meeting, commit, mine, patience)
        self._recent.append(commit)
        return Exchange(commit, mean, self.rank)

    def _catch_up(self, training: Training) -> None:
        while (exchange := self.committed(training.state.round + 1)) is not None:
            self._apply(training, exchange)

    def _apply(self, training: Training, exchange: Exchange) -> None:
        state = training.state
        training.outer.apply(state, exchange.mean, training.packing.optimized)
        members = exchange.commit.members
        keeper = members[state.round // STATE_EVERY_ROUNDS % len(members)]
        if state.round % STATE_EVERY_ROUNDS == 0 and keeper.rank == self.rank:
            store_state(self._meeting.store, self._meeting.run, training.packing, state)
