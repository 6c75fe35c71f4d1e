"""Which replica writes the model of a run, and when.

The last replicas to finish: while a member of the last round trains on, there may be another round. Each replica gives
its rank up before it looks, so the last one to do so sees that all others have. If several see that, the first entry in
the list of writers decides. A writer that dies is followed by the process that claims its rank next, or by another
replica that finishes later. Members that are gone for good are not waited for: they took no part in the last round.

In an elastic run a member of the last round may be gone for good as well: its seat was closed. There the first one to
finish enters the list, and writes once all others have finished, or have been silent as long as a round takes.
"""

from __future__ import annotations

from muster.contract.run.commit import Commit
from muster.replica.replica_errors import FencedError
from muster.replica.rounds.claims import Claim, is_superseded, newer_holder
from muster.replica.rounds.commit_store import stored_document
from muster.replica.rounds.round_context import POLL_MAX_SECONDS, RoundContext, log
from muster.replica.store.transport import create_once
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.blocks import CONNECTIONS
from muster.replica.wire.headers import ModelWriter


def is_last_model(context: RoundContext, rank: int, commit: Commit | None) -> bool:
    """Whether the model after the last round of this replica, of which `commit` is, is to be written in an elastic run.

    Not if another round is committed while this waits for those who have not finished. Nor does it wait if it is asked
    to stop.
    """
    clock, began, round_ = context.clock, context.clock.monotonic(), 0 if commit is None else commit.round
    patience_seconds = context.quorum.patience_seconds(commit)
    while others_train_on(context, rank, commit) and not context.stops.asked.is_set():
        if context.store.exists(rendezvous_keys.commit(round_ + 1)):
            return False
        waited = clock.monotonic() - began
        if waited >= patience_seconds:
            log.warning("round=%d event=model-without-others seconds=%d", round_, waited)
            break
        clock.wait(context.stops.asked, min(POLL_MAX_SECONDS, patience_seconds - waited))
    return True


def others_train_on(context: RoundContext, rank: int, commit: Commit | None) -> bool:
    """Whether a replica that took part in the last round, of which `commit` is, has not finished yet."""
    if context.on_early_finish is None:
        return False  # replicas do not report it: the first one writes

    def trains(other: int) -> bool:
        holder = newer_holder(context.store, other, commit.epoch_of(other) if commit else 0)
        # A continuation calls the trainers again.
        return holder is None or holder.finish is None or holder.finish.run != context.trained_by

    members = context.quorum.first if commit is None else [one.rank for one in commit.members if not one.leaves]
    others = [other for other in members if other != rank]
    # Those of a large run usually find one at once: only the last replicas ask for all.
    batches = (others[first : first + CONNECTIONS] for first in range(0, len(others), CONNECTIONS))
    return any(any(context.side_by_side(trains, batch)) for batch in batches)


def become_writer(context: RoundContext, claim: Claim, round_: int) -> int | None:
    """Enter the list of writers: this process's number there, or None if another replica writes this model or a later.

    Raises:
        RendezvousError: an entry is damaged.
    """
    me = ModelWriter(run=context.trained_by, round=round_, rank=claim.rank, epoch=claim.epoch)
    number, last = 0, None
    while True:
        while (
            entry := stored_document(context.store, rendezvous_keys.model_writer(number + 1), ModelWriter)
        ) is not None:
            number, last = number + 1, entry
        others = last is not None and last.run == me.run and last.round >= round_ and last.rank != claim.rank
        if others and last is not None and not is_superseded(context.store, last.rank, last.epoch):
            return None
        if create_once(context.store, rendezvous_keys.model_writer(number + 1), me.to_json()):
            return number + 1


def check_writer(context: RoundContext, claim: Claim, number: int) -> None:
    """Return if no process has become the writer after this one.

    Raises:
        FencedError: one has.
    """
    if context.store.exists(rendezvous_keys.model_writer(number + 1)):
        raise FencedError(claim.rank, claim.attempt, claim.incarnation)
