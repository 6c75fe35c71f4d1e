"""What was: the last committed round, and the latest state from which the rounds after it can be replayed."""

from __future__ import annotations

from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.errors import RendezvousError
from muster.replica.rounds.round_context import log
from muster.replica.rounds.snapshots import Snapshots
from muster.replica.store.transport import ObjectMissingError, Store
from muster.replica.wire import keys

# How often a snapshot may be deleted for a newer one while it is read, before something must be wrong.
LOADS_MAX = 8


def last_committed(store: Store) -> int:
    """The last committed round, 0 if there is none. Commits have no gaps: 2 log2(rounds) looks find it."""
    high = 1
    while store.exists(keys.commit(high)):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if store.exists(keys.commit(middle)) else (low, middle)
    return low


def latest_state(snapshots: Snapshots, after: int = -1) -> GlobalState | None:
    """The newest complete snapshot of a round later than `after`; None where there is none.

    Raises:
        ParametersError: it is of another model.
        RendezvousError: all that there are are damaged.
    """
    damaged: RendezvousError | None = None
    for _ in range(LOADS_MAX):
        try:
            for round_ in snapshots.rounds(last_committed(snapshots.meeting.store), after):
                try:
                    state = snapshots.load(round_)
                except RendezvousError as error:
                    log.warning("round=%d event=damaged-snapshot reason=%r", round_, str(error))
                    damaged = error
                    continue
                if state is not None:
                    return state
        except ObjectMissingError:
            # Deleted while it was read, so a newer one is complete by now.
            continue
        if damaged is not None:
            raise damaged
        return None
    message = f"A snapshot was deleted {LOADS_MAX} times while it was read; raise rendezvous.snapshot_rounds."
    raise RendezvousError(message)
