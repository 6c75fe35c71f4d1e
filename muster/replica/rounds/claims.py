"""Who carries a rank: claims in one growing row per rank, each created once. The last holds, all others are fenced."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from muster.contract.errors import DocumentError
from muster.replica.errors import FencedError, RendezvousError
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError, Store
from muster.replica.wire import keys
from muster.replica.wire.headers import Claim

EPOCH_MAX = 999_999  # six digits in a key


@dataclass(frozen=True)
class Seat:
    """A process's hold of its rank."""

    rank: int
    attempt: int
    incarnation: int
    epoch: int


def take_seat(store: Store, run: str, rank: int, attempt: int, known_epoch: int = 0) -> Seat:
    """Claim `rank` for this process, as the next incarnation of `attempt`. Supersedes every claim before it.

    Args:
        known_epoch: a claim that is known to exist, from where the row is read on (0: from its beginning).

    Raises:
        FencedError: a newer attempt holds the rank already.
    """
    holder = _read_claim(store, rank, known_epoch) if known_epoch else None
    epoch = known_epoch
    nonce = uuid.uuid4().hex
    while True:
        while (later := _read_claim(store, rank, epoch + 1)) is not None:
            epoch, holder = epoch + 1, later
            if later.nonce == nonce:  # our create went through although its answer was lost
                return Seat(rank, attempt, later.incarnation, epoch)
        if holder is not None and holder.attempt > attempt:
            raise FencedError(rank, attempt, 1)
        incarnation = holder.incarnation + 1 if holder is not None and holder.attempt == attempt else 1
        claim = Claim(run=run, rank=rank, attempt=attempt, incarnation=incarnation, nonce=nonce)
        if _create(store, claim, epoch + 1):
            return Seat(rank, attempt, incarnation, epoch + 1)


def renew_seat(store: Store, run: str, seat: Seat) -> Seat:
    """Claim the rank again for the same process: tells the others, who went on without it, that it is back.

    Raises:
        FencedError: somebody else has claimed it since.
    """
    nonce = uuid.uuid4().hex
    claim = Claim(run=run, rank=seat.rank, attempt=seat.attempt, incarnation=seat.incarnation, nonce=nonce)
    if not _create(store, claim, seat.epoch + 1):
        found = _read_claim(store, seat.rank, seat.epoch + 1)
        if found is None or found.nonce != nonce:
            raise FencedError(seat.rank, seat.attempt, seat.incarnation)
    return Seat(seat.rank, seat.attempt, seat.incarnation, seat.epoch + 1)


def check_seat(store: Store, seat: Seat) -> None:
    """Return if the seat is still held.

    Raises:
        FencedError: it is not.
    """
    if is_superseded(store, seat.rank, seat.epoch):
        raise FencedError(seat.rank, seat.attempt, seat.incarnation)


def is_superseded(store: Store, rank: int, epoch: int) -> bool:
    """Whether there is a claim after `epoch`."""
    return store.exists(keys.claim(rank, epoch + 1))


def _create(store: Store, claim: Claim, epoch: int) -> bool:
    if epoch > EPOCH_MAX:
        message = f"Rank {claim.rank} was claimed {EPOCH_MAX} times; something restarts it without end."
        raise RendezvousError(message)
    try:
        store.create(keys.claim(claim.rank, epoch), claim.to_json())
    except ObjectExistsError:
        return False
    return True


def _read_claim(store: Store, rank: int, epoch: int) -> Claim | None:
    key = keys.claim(rank, epoch)
    try:
        body = store.read(key).body
    except ObjectMissingError:
        return None
    try:
        return Claim.from_json(bytes(body), store.uri(key))
    except DocumentError as error:
        raise RendezvousError(str(error)) from None
