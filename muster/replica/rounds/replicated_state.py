"""The global state as one replica holds it: join from a snapshot, replay the rounds after it, then advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TypeVar

from muster.contract.run.commit import Commit
from muster.contract.run.time_use import Activity
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import Outer
from muster.replica.errors import RendezvousError, RoundGoneError
from muster.replica.free_memory import give_back
from muster.replica.parts.link import by_first
from muster.replica.parts.packing import Packing
from muster.replica.rounds.exchange import Exchange, LocalUpdate
from muster.replica.rounds.initial_state import ensure_initial_state
from muster.replica.rounds.rendezvous import Rendezvous, Trained
from muster.replica.rounds.retention import Keeper
from muster.replica.rounds.round_context import log
from muster.replica.rounds.round_history import latest_state
from muster.replica.rounds.snapshots import Snapshots
from muster.replica.wire import keys
from muster.replica.wire.binary_format import checksums_digest, state_checksums

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class ReplicatedState(Trained):
    """A replica's copy of the global state: all replicas apply the same means in the same order.

    Attributes:
        packing: the trainer's own arrays.
        rendezvous: exchanges the rounds.
        outer: applies a round's mean to the state.
        snapshots: where the state is stored from time to time.
        keeper: completes snapshots and deletes old data.
    """

    packing: Packing
    rendezvous: Rendezvous
    outer: Outer
    snapshots: Snapshots
    keeper: Keeper

    @classmethod
    def join(cls, rendezvous: Rendezvous, packing: Packing, algorithm: Algorithm) -> ReplicatedState:
        """The state after the last committed round: the newest snapshot or the initial state, then replay.

        Raises:
            ParametersError: another model than the run's, or this process has joined before.
            AlgorithmError: other settings than the run's.
            FencedError, StoppedError, RendezvousError
        """
        rendezvous.refuse_second_join()
        snapshot_rounds = rendezvous.context.snapshot_rounds
        rendezvous.agree(algorithm.codec, {**asdict(algorithm), "snapshot_rounds": snapshot_rounds})
        context = rendezvous.context
        cut = packing.cut_for(context.codec, algorithm.fragments)
        packing.divide(cut)
        snapshots = Snapshots(context, cut, packing.layout)
        state = latest_state(snapshots)
        if state is None:
            ensure_initial_state(snapshots, rendezvous.claim, packing.read())
            state = latest_state(snapshots)
        if state is None:
            message = f"The run {context.run} has no initial state."
            raise RendezvousError(message)
        began = state.round
        joined = cls(
            packing=packing,
            state=state,
            rendezvous=rendezvous,
            outer=algorithm.outer,
            snapshots=snapshots,
            keeper=Keeper(snapshots, rendezvous.rank),
        )
        rendezvous.enter(joined)
        joined._catch_up()
        context.joined()
        rendezvous.ready()
        give_back()
        log.info("event=joined round=%d replayed=%d", state.round, state.round - began)
        return joined

    def advance(self, update: LocalUpdate) -> Exchange | None:
        """Contribute to the next round and apply the round's mean; blocks until then.

        A straggler that was left out applies all rounds committed meanwhile, drops its own local progress (which
        started from parameters that are no longer the run's: adding it would make this replica differ from its peers)
        and renews its claim, so that the round after expects it. None if it slept until its round was deleted: the
        state is then that of the newest snapshot and the rounds after it.

        Raises:
            FencedError, StoppedError, RendezvousError, DivergedError
        """
        exchange: Exchange | None = None
        try:
            exchange = self.rendezvous.exchange(self.state.round + 1, replace(update, state=self._digest()))
        except RoundGoneError:
            self._skip_to_snapshot()
        if exchange is not None:
            self._apply(exchange)
            if exchange.is_member:
                with self.rendezvous.times.stage(Activity.SAVING):
                    self._write_snapshot(exchange.commit)
                    self._by_first(partial(self.keeper.keep, exchange.commit))
        if exchange is None or exchange.left_out:
            with self.rendezvous.times.stage(Activity.LOADING):
                self._catch_up()
                self.rendezvous.rejoin()
            log.warning("event=left-out now=%d", self.state.round)
        give_back()
        return exchange

    def _digest(self) -> str:
        """Names the parameters that the next round carries, as they are now: the same on all replicas."""
        cut = self.packing.cut
        part = self.outer.part(self.state.round + 1, cut.count)
        blocks = cut.blocks(part)
        mine = state_checksums(self.state.parameters[cut.local(part)], blocks, blocks.shard(cut.rank, cut.size))
        return checksums_digest(self.rendezvous.context.link.gather(mine))

    def _apply(self, exchange: Exchange) -> None:
        if exchange.commit.void:
            self.state.round += 1
            return
        self.outer.apply(self.state, exchange.mean, self.packing.optimized, self.packing.cut)

    def _by_first(self, action: Callable[[], T]) -> T:
        return by_first(self.rendezvous.context.link, action)

    def _catch_up(self) -> None:
        """Apply every round that is committed by now."""
        while True:
            try:
                exchange = self.rendezvous.committed(self.state.round + 1)
            except RoundGoneError:
                self._skip_to_snapshot()
                continue
            if exchange is None:
                return
            self._apply(exchange)
            self._complete_snapshot(exchange.commit)

    def _skip_to_snapshot(self) -> None:
        """Continue from a newer snapshot: the next round's data are deleted."""
        state = self.state
        found = latest_state(self.snapshots, after=state.round)
        if found is None:
            message = f"The data of round {state.round + 1} have been deleted, and there is no later snapshot."
            raise RendezvousError(message)
        log.warning("round=%d event=fell-forward from=%d", found.round, state.round)
        state.parameters[...], state.momentum[...], state.round = found.parameters, found.momentum, found.round
        self.rendezvous.remember(state.round)

    def _write_snapshot(self, commit: Commit) -> None:
        """Write this member's shards if the round has a snapshot."""
        state = self.state
        if state.round % self.rendezvous.context.snapshot_rounds == 0:
            members = commit.members
            rank = self.rendezvous.rank
            shards = range(self.snapshots.shards(state.round))
            own = [shard for shard in shards if members[(shard + state.round) % len(members)].rank == rank]
            self.snapshots.put(state, own)

    def _complete_snapshot(self, commit: Commit) -> None:
        """Complete the snapshot of a round that is replayed.

        This rank's own shards are written in any case, by the process that holds the rank now. Once the next round is
        committed, members that have not written theirs never will: then all missing shards are written.
        """
        round_ = self.state.round
        if round_ % self.rendezvous.context.snapshot_rounds:
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
        if not self.rendezvous.context.store.exists(keys.commit(round_ + 1)):
            return None
        return self.snapshots.missing(round_)
