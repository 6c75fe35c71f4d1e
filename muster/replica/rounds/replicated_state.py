"""The global state as one replica holds it: join from a snapshot, replay the rounds after it, then advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TypeVar

from muster.contract.run.commit import Commit
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Outer
from muster.replica.errors import RendezvousError, RoundGoneError
from muster.replica.free_memory import give_back
from muster.replica.parts.link import by_first
from muster.replica.parts.packing import Packing
from muster.replica.rounds.background import Background
from muster.replica.rounds.exchange import Exchange
from muster.replica.rounds.initial_state import ensure_initial_state
from muster.replica.rounds.retention import Keeper
from muster.replica.rounds.round import Rounds
from muster.replica.rounds.round_context import log
from muster.replica.rounds.round_history import latest_state
from muster.replica.rounds.run_options import agree_on_options
from muster.replica.rounds.snapshots import Snapshots
from muster.replica.wire import keys
from muster.replica.wire.binary_format import checksums_digest, state_checksums

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a process trains and leaves as its result.

    Attributes:
        state: the global state, which advances round by round.
        packing: the trainer's own arrays; None where it keeps them to itself.
        exchanges: the exchange that runs beside the training loop.
    """

    state: GlobalState
    packing: Packing | None = None
    exchanges: Background[Exchange | None] = field(default_factory=Background)


@dataclass(frozen=True, kw_only=True)
class ReplicatedState(Trained):
    """A replica's copy of the global state: all replicas apply the same means in the same order.

    Attributes:
        packing: the trainer's own arrays.
        rounds: those that the process plays.
        outer: applies a round's mean to the state.
        snapshots: where the state is stored from time to time.
        keeper: completes snapshots and deletes old data.
    """

    packing: Packing
    rounds: Rounds
    outer: Outer
    snapshots: Snapshots
    keeper: Keeper

    @property
    def round(self) -> int:
        """See `State`."""
        return self.state.round

    @classmethod
    def join(
        cls, rounds: Rounds, packing: Packing, algorithm: Algorithm, loaded: Callable[[], object] = lambda: None
    ) -> ReplicatedState:
        """The state after the last committed round: the newest snapshot or the initial state, then replay.

        `loaded` is called once it is loaded, before the others wait for this process.

        Raises:
            ParametersError: another model than the run's, or this process has joined before.
            AlgorithmError: other settings than the run's.
            FencedError, StoppedError, RendezvousError
        """
        rounds.seen.refuse_second_join()
        settings = {**asdict(algorithm), "snapshot_rounds": rounds.context.snapshot_rounds}
        context = rounds.context = agree_on_options(rounds.context, algorithm.codec, settings)
        cut = packing.cut_for(context.codec, algorithm.fragments)
        packing.divide(cut)
        snapshots = Snapshots(context, cut, packing.layout)
        state = latest_state(snapshots)
        if state is None:
            ensure_initial_state(snapshots, rounds.seat.claim, packing.read())
            state = latest_state(snapshots)
        if state is None:
            message = f"The run {context.run} has no initial state."
            raise RendezvousError(message)
        began = state.round
        joined = cls(
            packing=packing,
            state=state,
            rounds=rounds,
            outer=algorithm.outer,
            snapshots=snapshots,
            keeper=Keeper(snapshots, rounds.seat.rank),
        )
        rounds.seen.join(context, state.round)
        joined.catch_up()
        loaded()
        rounds.seat.ready()
        give_back()
        log.info("event=joined round=%d replayed=%d", state.round, state.round - began)
        return joined

    def digest(self) -> str:
        """See `State`: names the parameters as they are now."""
        cut = self.packing.cut
        part = self.outer.part(self.state.round + 1, cut.count)
        blocks = cut.blocks(part)
        mine = state_checksums(self.state.parameters[cut.local(part)], blocks, blocks.shard(cut.rank, cut.size))
        return checksums_digest(self.rounds.context.link.gather(mine))

    def apply(self, exchange: Exchange) -> None:
        """See `State`. A void round changes nothing."""
        if exchange.commit.void:
            self.state.round += 1
            return
        self.outer.apply(self.state, exchange.mean, self.packing.optimized, self.packing.cut)

    def _by_first(self, action: Callable[[], T]) -> T:
        return by_first(self.rounds.context.link, action)

    def store(self, commit: Commit) -> None:
        """See `State`: this member's shards if the round has a snapshot, and what its keeper does."""
        self._write_snapshot(commit)
        self._by_first(partial(self.keeper.keep, commit))

    def catch_up(self) -> None:
        """See `State`."""
        while True:
            try:
                exchange = self.rounds.committed(self.state.round + 1)
            except RoundGoneError:
                self.skip()
                continue
            if exchange is None:
                return
            self.apply(exchange)
            self._complete_snapshot(exchange.commit)

    def skip(self) -> None:
        """See `State`."""
        state = self.state
        found = latest_state(self.snapshots, after=state.round)
        if found is None:
            message = f"The data of round {state.round + 1} have been deleted, and there is no later snapshot."
            raise RendezvousError(message)
        log.warning("round=%d event=fell-forward from=%d", found.round, state.round)
        state.parameters[...], state.momentum[...], state.round = found.parameters, found.momentum, found.round
        self.rounds.seen.remember(self.rounds.context, state.round)

    def _write_snapshot(self, commit: Commit) -> None:
        """Write this member's shards if the round has a snapshot."""
        state = self.state
        if state.round % self.rounds.context.snapshot_rounds == 0:
            members = commit.members
            rank = self.rounds.seat.rank
            shards = range(self.snapshots.shards(state.round))
            own = [shard for shard in shards if members[(shard + state.round) % len(members)].rank == rank]
            self.snapshots.put(state, own)

    def _complete_snapshot(self, commit: Commit) -> None:
        """Complete the snapshot of a round that is replayed.

        This rank's own shards are written in any case, by the process that holds the rank now. Once the next round is
        committed, members that have not written theirs never will: then all missing shards are written.
        """
        round_ = self.state.round
        if round_ % self.rounds.context.snapshot_rounds:
            return
        if self._by_first(lambda: self.snapshots.is_sealed(round_)):
            return
        missing = self._by_first(lambda: self._missing_for_good(round_))
        if missing is None:
            self._write_snapshot(commit)
        else:
            self.snapshots.put(self.state, missing)
            self._by_first(lambda: self.snapshots.seal(round_))

    def _missing_for_good(self, round_: int) -> list[int] | None:
        """The shards of a snapshot that no member will write any more; None while they may."""
        if not self.rounds.context.store.exists(keys.commit(round_ + 1)):
            return None
        return self.snapshots.missing(round_)
