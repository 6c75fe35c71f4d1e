"""Round history: the last committed round, and the newest state from which later rounds can be replayed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from muster.contract.run.commit import last_round
from muster.replica.parts.link import by_first
from muster.replica.replica_errors import RendezvousError
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.rounds.snapshots import read_manifest, rounds_with_snapshots
from muster.replica.store.transport import ObjectMissingError, Store
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.headers import SnapshotManifest

T = TypeVar("T")

# How often a snapshot may be replaced by a newer one while it is read before this counts as an error.
LOADS_MAX = 8


def last_committed(store: Store) -> int:
    """The last committed round, 0 if there is none; each question is a HEAD request."""
    return last_round(lambda round_: store.exists(rendezvous_keys.commit(round_)))


def newest_snapshot(context: RoundContext, load: Callable[[SnapshotManifest], T], after: int = -1) -> T | None:
    """What `load` makes of the newest complete snapshot of a round after `after`; None if there is none.

    If `load` raises RendezvousError, the snapshot before is loaded, and if ObjectMissingError, the newest one by then.

    Raises:
        RendezvousError: every snapshot is damaged.
    """
    damaged: RendezvousError | None = None
    link, store = context.link, context.store
    for _ in range(LOADS_MAX):
        try:
            for round_ in rounds_with_snapshots(context, by_first(link, lambda: last_committed(store)), after):
                try:
                    # One look for all processes of the replica: it may be written between two of theirs.
                    manifest = by_first(link, partial(read_manifest, context, round_))
                    found = None if manifest is None else load(manifest)
                except RendezvousError as error:
                    log.warning("round=%d event=damaged-snapshot reason=%r", round_, str(error))
                    damaged = error
                    continue
                if found is not None:
                    return found
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
