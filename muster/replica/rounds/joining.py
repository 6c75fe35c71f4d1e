"""How a process joins a run: from the newest snapshot, or the initial state, and the rounds after it.

Of the initial state one process uploads its parameters, and all others load them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.free_memory import give_back
from muster.replica.parts.link import by_first
from muster.replica.parts.packing import Packing
from muster.replica.replica_errors import HistoryGoneError, RendezvousError
from muster.replica.rounds.claims import Claim, is_superseded
from muster.replica.rounds.commit_store import stored_document
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.rounds.retention import Keeper
from muster.replica.rounds.round import Rounds
from muster.replica.rounds.round_context import Polling, RoundContext, log
from muster.replica.rounds.round_history import last_committed, newest_snapshot
from muster.replica.rounds.run_options import agree_on_options
from muster.replica.rounds.snapshots import Snapshots
from muster.replica.store.transport import ObjectMissingError, create_once
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.headers import InitialStateSource

# The others stop waiting for the uploader when it adds no shard for as long as 64 MiB take at 2 MiB/s.
STALL_SECONDS = 30.0


def join(
    rounds: Rounds, packing: Packing, algorithm: Algorithm, loaded: Callable[[], object] = lambda: None
) -> ReplicatedState:
    """The state after the last committed round. `loaded` is called before the others wait for this process.

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
    state = newest_snapshot(context, snapshots.load)
    if state is None:
        ensure_initial_state(snapshots, rounds.seat.claim, packing.read())
        state = newest_snapshot(context, snapshots.load)
    if state is None:
        message = f"The run {context.run} has no initial state."
        raise RendezvousError(message)
    began, rank = state.round, rounds.seat.rank
    keeper = Keeper(snapshots, rank)
    joined = ReplicatedState(
        packing=packing,
        state=state,
        outer=algorithm.outer,
        snapshots=snapshots,
        keeper=keeper,
        is_radial=algorithm.is_radial,
    )
    rounds.seen.join(context, state.round)
    rounds.catch_up(joined)
    loaded()
    rounds.seat.ready(state.round)
    give_back()
    log.info("event=joined round=%d replayed=%d", state.round, state.round - began)
    return joined


def ensure_initial_state(snapshots: Snapshots, claim: Claim, parameters: Floats) -> None:
    """Make sure that a snapshot of round 0 exists: `parameters`, or those of the process that came first.

    The first process uploads and the others wait, so that the model is uploaded once, not once per replica. If the
    first one makes no progress, the others upload as well, and the first manifest decides.

    Args:
        parameters: what this process holds of them.

    Raises:
        HistoryGoneError: rounds are committed already, so there was another initial state.
        StoppedError, RendezvousError
    """
    context = snapshots.context
    if by_first(context.link, lambda: _arrives(snapshots, claim)):
        return
    source = _source(claim.rank, claim.epoch)
    # Not zeros_like, which writes: the momentum of round 0 is not stored, and takes no memory here.
    state = GlobalState(0, parameters, np.zeros(parameters.size, np.float32))
    snapshots.put(state, range(snapshots.shards(0)), source)
    by_first(context.link, lambda: snapshots.seal(0, source))
    log.info("event=began rank=%d", claim.rank)


def _arrives(snapshots: Snapshots, claim: Claim) -> bool:
    """Whether the initial state exists, perhaps after a wait for its uploader; if not, this replica uploads its own."""
    if snapshots.is_sealed(0):
        return True
    context = snapshots.context
    # In this order: the first round is committed after the initial state is complete.
    if (last := last_committed(context.store)) and not snapshots.is_sealed(0):
        found = f"{last} rounds are committed, and there is no state from which they can be applied"
        raise HistoryGoneError(context.store.uri(rendezvous_keys.manifest(0)), found)
    first = _uploader(context, claim)
    return (first.rank, first.epoch) != (claim.rank, claim.epoch) and _arrived(snapshots, first, context.polling())


def _uploader(context: RoundContext, claim: Claim) -> InitialStateSource:
    """The process that uploads its parameters."""
    me = InitialStateSource(run=context.run, rank=claim.rank, epoch=claim.epoch)
    if create_once(context.store, rendezvous_keys.INITIAL_STATE_SOURCE, me.to_json()):
        return me
    first = stored_document(context.store, rendezvous_keys.INITIAL_STATE_SOURCE, InitialStateSource)
    if first is None:
        raise RendezvousError(str(ObjectMissingError(context.store.uri(rendezvous_keys.INITIAL_STATE_SOURCE))))
    return first


def _arrived(snapshots: Snapshots, first: InitialStateSource, polling: Polling) -> bool:
    """Wait for the manifest while `first` makes progress, at most until the time-out; whether it arrived."""
    context = snapshots.context
    uploaded = 0
    since = context.clock.monotonic()
    while not snapshots.is_sealed(0):
        if uploaded < snapshots.shards(0) and context.store.exists(
            rendezvous_keys.snapshot(0, _source(first.rank, first.epoch), uploaded)
        ):
            uploaded += 1
            since = context.clock.monotonic()
        stalled = context.clock.monotonic() - since >= STALL_SECONDS or polling.left_seconds <= 0
        if stalled or is_superseded(context.store, first.rank, first.epoch):
            return False
        polling.rest()
    return True


def _source(rank: int, epoch: int) -> str:
    return f"{rank:05d}-{epoch:06d}"
