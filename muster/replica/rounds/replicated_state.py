"""The global state as one replica holds it: it applies each round's mean, and stores and loads snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from muster.contract.run.commit import Commit
from muster.replica.algorithms.outer_optimizer import GlobalState, Nesterov
from muster.replica.algorithms.radial import mean_norm, norm_of_all
from muster.replica.parts.link import by_first
from muster.replica.parts.packing import Packing
from muster.replica.replica_errors import RendezvousError
from muster.replica.rounds.background import Background
from muster.replica.rounds.exchange import Exchange
from muster.replica.rounds.retention import Keeper
from muster.replica.rounds.round_context import log
from muster.replica.rounds.round_history import newest_snapshot
from muster.replica.rounds.snapshots import Snapshots
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import checksums_digest, state_checksums


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
        outer: applies a round's mean to the state.
        snapshots: where the state is stored from time to time.
        keeper: completes snapshots and deletes old data.
        is_radial: whether a mean is one of directions, and gets its norm here.
    """

    packing: Packing
    outer: Nesterov
    snapshots: Snapshots
    keeper: Keeper
    is_radial: bool = False

    @property
    def round(self) -> int:
        """The last round that was applied."""
        return self.state.round

    def digest(self) -> str:
        """Names the parameters that the next round carries, as they are now: the same on all replicas."""
        cut = self.packing.cut
        part = cut.fragment_of(self.state.round + 1)
        blocks = cut.blocks(part)
        mine = state_checksums(self.state.parameters[cut.local(part)], blocks, blocks.shard(cut.rank, cut.size))
        return checksums_digest(self.snapshots.context.link.gather(mine))

    def apply(self, exchange: Exchange) -> None:
        """Apply a round's mean; a void round changes nothing but a momentum that begins again."""
        if exchange.commit.void:
            self.outer.skip(self.state, self.packing.cut)
            return
        if self.is_radial:
            self._scale(exchange)
        self.outer.apply(self.state, exchange.mean, self.packing.cut)

    def _scale(self, exchange: Exchange) -> None:
        """Give the mean of directions the members' mean norm, in place. All processes of the replica call this."""
        cut = self.packing.cut
        part = cut.fragment_of(self.state.round + 1)
        mean = exchange.mean[: cut.parameters_in(part)]
        length = norm_of_all(self.snapshots.context.link, mean, cut.blocks(part).elements)
        norm = mean_norm(exchange.commit.members)
        if length and norm:
            mean *= np.float32(norm / length)

    def store(self, commit: Commit) -> None:
        """Store this member's shards if the round has a snapshot, and do what its keeper does."""
        self._write_snapshot(commit)
        by_first(self.snapshots.context.link, partial(self.keeper.keep, commit))

    def skip(self) -> None:
        """Continue from a newer snapshot: the next round's data are deleted."""
        state = self.state
        found = newest_snapshot(self.snapshots.context, self.snapshots.load, after=state.round)
        if found is None:
            message = f"The data of round {state.round + 1} have been deleted, and there is no later snapshot."
            raise RendezvousError(message)
        log.warning("round=%d event=fell-forward from=%d", found.round, state.round)
        state.parameters[...], state.momentum[...], state.round = found.parameters, found.momentum, found.round

    def _write_snapshot(self, commit: Commit) -> None:
        """Write this member's shards if the round has a snapshot."""
        state = self.state
        if state.round % self.snapshots.context.snapshot_rounds == 0:
            members = commit.keepers
            shards = range(self.snapshots.shards(state.round))
            own = [shard for shard in shards if members[(shard + state.round) % len(members)].rank == self.keeper.rank]
            self.snapshots.put(state, own)

    def complete_snapshot(self, commit: Commit) -> None:
        """Complete the snapshot of a round that is replayed.

        This rank's own shards are written in any case, by the process that holds the rank now. Once the next round is
        committed, members that have not written theirs never will: then all missing shards are written.
        """
        round_ = self.state.round
        if round_ % self.snapshots.context.snapshot_rounds:
            return
        if by_first(self.snapshots.context.link, lambda: self.snapshots.is_sealed(round_)):
            return
        missing = by_first(self.snapshots.context.link, lambda: self._missing_for_good(round_))
        if missing is None:
            self._write_snapshot(commit)
        else:
            self.snapshots.put(self.state, missing)
            by_first(self.snapshots.context.link, lambda: self.snapshots.seal(round_))

    def _missing_for_good(self, round_: int) -> list[int] | None:
        """The shards of a snapshot that no member will write any more; None while they may."""
        if not self.snapshots.context.store.exists(rendezvous_keys.commit(round_ + 1)):
            return None
        return self.snapshots.missing(round_)
