"""What training begins with: one process's parameters, which all others take."""

from __future__ import annotations

import numpy as np

from muster.contract.errors import DocumentError
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.errors import RendezvousError
from muster.replica.rounds.claims import Seat, is_superseded
from muster.replica.rounds.round_context import Meeting, Patience, log
from muster.replica.rounds.snapshots import Snapshots
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.headers import Beginner

# The others stop waiting for the beginner when it brings nothing for as long as a shard of 64 MiB takes at 2 MiB/s.
STALL_SECONDS = 30.0


def begin(snapshots: Snapshots, seat: Seat, parameters: Floats) -> None:
    """See to it that there is a snapshot of round 0: `parameters`, or those of whoever came first.

    Who comes first uploads, the others wait for it, so that the model goes up once and not once per replica. Should
    it not get on, the others upload as well; the first manifest decides.

    Raises:
        StoppedError, RendezvousError
    """
    if snapshots.is_sealed(0):
        return
    meeting = snapshots.meeting
    first = _first(meeting, seat)
    if (first.rank, first.epoch) != (seat.rank, seat.epoch) and _came(snapshots, first, meeting.patience()):
        return
    source = _source(seat.rank, seat.epoch)
    state = GlobalState(0, parameters, np.zeros_like(parameters))
    snapshots.put(state, range(snapshots.shards(0)), source)
    snapshots.seal(0, source)
    log.info("event=began rank=%d", seat.rank)


def _first(meeting: Meeting, seat: Seat) -> Beginner:
    """Who is to upload what it brought."""
    me = Beginner(run=meeting.run, rank=seat.rank, epoch=seat.epoch)
    try:
        meeting.store.create(keys.BEGINNER, me.to_json())
    except ObjectExistsError:
        try:
            return Beginner.from_json(bytes(meeting.store.read(keys.BEGINNER).body), meeting.store.uri(keys.BEGINNER))
        except (DocumentError, ObjectMissingError) as error:
            raise RendezvousError(str(error)) from None
    return me


def _came(snapshots: Snapshots, first: Beginner, patience: Patience) -> bool:
    """Wait for the manifest as long as `first` gets on; whether it came."""
    meeting = snapshots.meeting
    uploaded = 0
    since = meeting.clock.monotonic()
    while not snapshots.is_sealed(0):
        if uploaded < snapshots.shards(0) and meeting.store.exists(
            keys.snapshot(0, _source(first.rank, first.epoch), uploaded)
        ):
            uploaded += 1
            since = meeting.clock.monotonic()
        stalled = meeting.clock.monotonic() - since >= STALL_SECONDS
        if stalled or is_superseded(meeting.store, first.rank, first.epoch):
            return False
        patience.pause(lambda: f"the parameters that training begins with; rank {first.rank} was to bring them.")
    return True


def _source(rank: int, epoch: int) -> str:
    return f"{rank:05d}-{epoch:06d}"
