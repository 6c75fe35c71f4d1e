"""Round history: the last committed round, and the newest state from which later rounds can be replayed."""

from __future__ import annotations

from muster.contract.run.commit import last_round
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.errors import RendezvousError
from muster.replica.parts.link import by_first
from muster.replica.rounds.round_context import log
from muster.replica.rounds.snapshots import Snapshots
from muster.replica.store.transport import ObjectMissingError, Store
from muster.replica.wire import keys

# How often a snapshot may be replaced by a newer one while it is read before this counts as an error.
LOADS_MAX = 8


def last_committed(store: Store) -> int:
    """The last committed round, 0 if there is none; each question is a HEAD request."""
    return last_round(lambda round_: store.exists(keys.commit(round_)))


def latest_state(snapshots: Snapshots, after: int = -1) -> GlobalState | None:
    """The newest complete snapshot of a round after `after`; None if there is none.

    Raises:
        ParametersError: it belongs to another model.
        RendezvousError: every snapshot is damaged.
    """
    damaged: RendezvousError | None = None
    link, store = snapshots.context.link, snapshots.context.store
    for _ in range(LOADS_MAX):
        try:
            for round_ in snapshots.rounds(by_first(link, lambda: last_committed(store)), after):
                try:
                    state = snapshots.load(round_)
                except RendezvousError as error:
                    log.warning("round=%d event=damaged-snapshot reason=%r", round_, str(error))
                    damaged = error
                    continue
                if state is not None:
                    return state
        except ObjectMissingError:
            # Deleted while it was read: a newer one is complete.
            continue
        if damaged is not None:
            raise damaged
        return None
    if damaged is not None:
        # The ones before it are deleted, and none after it is complete.
        raise damaged
    message = f"A snapshot was deleted {LOADS_MAX} times while it was being read; increase rendezvous.snapshot_rounds."
    raise RendezvousError(message)
