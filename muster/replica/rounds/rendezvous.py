"""Where replicas meet: join the run's history, then advance round by round. One object per process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace

from muster.contract.run.commit import Commit
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Outer
from muster.replica.codecs import codec_named
from muster.replica.errors import ParametersError, RendezvousError, RoundGoneError
from muster.replica.frontends.background import Background
from muster.replica.frontends.packing import Packing
from muster.replica.metrics import Metrics
from muster.replica.rounds.agreement import agree
from muster.replica.rounds.claims import Seat, renew_seat, take_seat
from muster.replica.rounds.commits import read_commit, read_last_revision
from muster.replica.rounds.contribution import Contribution, contribute, make_contribution
from muster.replica.rounds.exchange import Exchange
from muster.replica.rounds.grace import ROUNDS_SEEN
from muster.replica.rounds.initial_state import begin
from muster.replica.rounds.reduction import reduced_mean
from muster.replica.rounds.retention import Keeper
from muster.replica.rounds.round_context import Meeting, Patience, log
from muster.replica.rounds.round_history import last_committed, latest_state
from muster.replica.rounds.run_options import Setting, agree_on_options
from muster.replica.rounds.snapshots import Snapshots
from muster.replica.wire import keys
from muster.replica.wire.binary_format import Floats


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a process trains, and leaves as its result: its arrays' packing, and the global state, which advances."""

    packing: Packing
    state: GlobalState
    exchanges: Background[Exchange | None] = field(default_factory=Background)


@dataclass(frozen=True, kw_only=True)
class Training(Trained):
    """What is done with the rounds' means, and where the state is stored from time to time."""

    outer: Outer
    snapshots: Snapshots
    keeper: Keeper


class Rendezvous:
    """This process's place among the replicas."""

    def __init__(self, meeting: Meeting, seat: Seat, metrics: Metrics) -> None:
        """The latest value of each of the `metrics` goes along with every contribution."""
        self._meeting = meeting
        self._seat = seat
        self.metrics = metrics
        self._recent: deque[Commit] = deque(maxlen=ROUNDS_SEEN)
        self._training: Trained | None = None

    @classmethod
    def open(cls, meeting: Meeting, rank: int, attempt: int, metrics: Metrics) -> Rendezvous:
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
    def training(self) -> Trained | None:
        """What is trained, with the state reached; None until `join` or `enter`."""
        return self._training

    @property
    def meeting(self) -> Meeting:
        """The store and the run's rules, for those who keep more there than rounds."""
        return self._meeting

    def agree(self, codec: str, settings: Mapping[str, Setting]) -> None:
        """Exchange in `codec` from now on, and see that this process trains as the run does; raises as
        `agree_on_options`.
        """
        self._meeting = replace(self._meeting, codec=codec_named(codec))
        agree_on_options(self._meeting, settings)

    def enter(self, trained: Trained) -> None:
        """Take part without `join`: whoever calls this has agreed, and brought the state after `trained.state.round`.

        Raises:
            ParametersError: joined already.
        """
        self._claim_training()
        self._training = trained
        self.remember(trained.state.round)

    def join(self, packing: Packing, algorithm: Algorithm) -> Training:
        """Come to the state after the last committed round: the run's beginning or a snapshot, then replay.

        Raises:
            ParametersError: another model than the run's, or joined already.
            AlgorithmError: other settings than the run's.
            FencedError, StoppedError, RendezvousError
        """
        self._claim_training()
        self.agree(algorithm.codec, {**asdict(algorithm), "snapshot_rounds": self._meeting.snapshot_rounds})
        snapshots = Snapshots(self._meeting, packing.count, packing.layout)
        state = latest_state(snapshots)
        if state is None:
            begin(snapshots, self._seat, packing.read())
            state = latest_state(snapshots)
        if state is None:
            message = f"The run {self._meeting.run} has no snapshot to begin with."
            raise RendezvousError(message)
        began = state.round
        self.remember(began)
        keeper = Keeper(snapshots, self.rank)
        training = self._training = Training(
            packing=packing, state=state, outer=algorithm.outer, snapshots=snapshots, keeper=keeper
        )
        self._catch_up(training)
        log.info("event=joined round=%d replayed=%d", state.round, state.round - began)
        return training

    def exchange(
        self,
        round_: int,
        gradient: Floats,
        weight: float,
        *,
        residual: Floats | None = None,
        before_giving: Callable[[], None] = lambda: None,
    ) -> Exchange:
        """Give `gradient` to `round_`, the one after the last that this process saw; blocks until its mean is known.

        Nothing is applied to any state. May run in a thread of its own, one exchange at a time.

        Args:
            residual: what is owed of the same elements, see `make_contribution`; stays if the round went without us.
            before_giving: called once the contribution is made and nobody can see it yet, or when it is too late.

        Raises:
            FencedError, StoppedError, RendezvousError, DivergedError
        """
        patience = self._meeting.patience()
        mine: Contribution | None = None
        commit = read_commit(self._meeting, round_)
        if commit is None:
            mine = make_contribution(
                self._meeting,
                self._seat,
                round_,
                gradient,
                weight=weight,
                metrics=self.metrics.latest(),
                residual=residual,
            )
            before_giving()
            contribute(self._meeting, self._seat, mine)
            commit = agree(self._meeting, self._seat, mine, tuple(self._recent), patience)
        else:
            before_giving()
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

    def advance(
        self,
        training: Training,
        gradient: Floats,
        weight: float,
        *,
        residual: Floats | None = None,
        before_giving: Callable[[], None] = lambda: None,
    ) -> Exchange | None:
        """Give `gradient` to the next round and apply the round's mean; blocks until then.

        A straggler whom the others left out applies all rounds that they made meanwhile, drops its own local progress
        (it was made from parameters that are no longer the run's, and who added it later would hold other bits than
        its peers) and reports back, so that it is waited for in the round after. None when it slept for so long that
        its round is deleted: the state is then that of the newest snapshot, and of the rounds after it.

        Args:
            residual, before_giving: as in `exchange`.

        Raises:
            FencedError, StoppedError, RendezvousError, DivergedError
        """
        exchange: Exchange | None = None
        try:
            round_ = training.state.round + 1
            exchange = self.exchange(round_, gradient, weight, residual=residual, before_giving=before_giving)
        except RoundGoneError:
            self._fall_forward(training)
        if exchange is not None:
            training.outer.apply(training.state, exchange.mean, training.packing.optimized)
            if exchange.took_part:
                self._write_snapshot(training, exchange.commit)
                training.keeper.keep(exchange.commit)
        if exchange is None or not exchange.commit.names(self.rank):
            self._catch_up(training)
            self.report_back()
            log.warning("event=left-out now=%d", training.state.round)
        return exchange

    def _claim_training(self) -> None:
        if self._training is not None:
            message = "A process joins the rendezvous once, with all its parameters in one DiLoCo."
            raise ParametersError(message)

    def _exchanged(self, commit: Commit, mine: Contribution | None, patience: Patience) -> Exchange:
        commit, mean = reduced_mean(self._meeting, commit, mine, patience)
        self._recent.append(commit)
        return Exchange(commit, mean, self.rank)

    def _catch_up(self, training: Training) -> None:
        """Apply what was committed, up to now."""
        while True:
            try:
                exchange = self.committed(training.state.round + 1)
            except RoundGoneError:
                self._fall_forward(training)
                continue
            if exchange is None:
                return
            training.outer.apply(training.state, exchange.mean, training.packing.optimized)
            self._mend_snapshot(training, exchange.commit)

    def _fall_forward(self, training: Training) -> None:
        """Go on from a snapshot: the next round's data are deleted."""
        state = training.state
        found = latest_state(training.snapshots, after=state.round)
        if found is None:
            message = f"The data of round {state.round + 1} are gone, and no snapshot covers them."
            raise RendezvousError(message)
        log.warning("round=%d event=fell-forward from=%d", found.round, state.round)
        state.parameters[...], state.momentum[...], state.round = found.parameters, found.momentum, found.round
        self.remember(state.round)

    def remember(self, round_: int) -> None:
        """Begin the memory of commits with that of `round_`: its members are waited for in the next one."""
        self._recent.clear()
        if round_ and (commit := read_last_revision(self._meeting, round_)) is not None:
            self._recent.append(commit)

    def _write_snapshot(self, training: Training, commit: Commit) -> None:
        """Write this member's shards, when the round is one of which there is to be a snapshot."""
        state = training.state
        if state.round % self._meeting.snapshot_rounds == 0:
            members = commit.members
            shards = range(training.snapshots.shards(state.round))
            own = [shard for shard in shards if members[(shard + state.round) % len(members)].rank == self.rank]
            training.snapshots.put(state, own)

    def _mend_snapshot(self, training: Training, commit: Commit) -> None:
        """Complete the snapshot of a round that is replayed.

        What this rank owes it is written in any case, by whoever carries the rank now. With the next round committed
        who has not written its shards never will, and all that is missing is.
        """
        round_ = training.state.round
        if round_ % self._meeting.snapshot_rounds or training.snapshots.is_sealed(round_):
            return
        if self._meeting.store.exists(keys.commit(round_ + 1)):
            training.snapshots.put(training.state, training.snapshots.missing(round_))
            training.snapshots.seal(round_)
        else:
            self._write_snapshot(training, commit)
