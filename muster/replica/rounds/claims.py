"""Which process holds a rank. Each rank has a sequence of claims, each created once; the last claim holds the rank.

A process that has finished makes one more claim, with which it gives the rank up. So the others learn of it where they
look anyway, and a rerun supersedes it like any other claim.

In an elastic run most seats may be empty, so the others do not look at the claims of every rank. Each claim is also
announced, below the last round that its process has seen: one listing shows all that are new. A process whose
announcement came too late for a round is left out of it, and renews its claim.

The processes of a replica share one claim. Their first process makes it, renews it and gives it up, and the others have
it from the first one. Not their launcher, because what a later claim says (the round, how training ended) is known to
those who train, and because a launcher that waits for no store can always pass a signal on. The claim does not outlive
the group: when the first process ends, the launcher ends the others.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter

from muster.contract.run.commit import Commit, Finish
from muster.replica.group.board import Board, InnerGroup, from_first
from muster.replica.replica_errors import FencedError, RendezvousError
from muster.replica.rounds.commit_store import stored_document
from muster.replica.rounds.round_context import log
from muster.replica.store.transport import Store, create_once
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.headers import ClaimDocument

EPOCH_MAX = 999_999  # six digits in a key
_ANNOUNCED = re.compile(r"announced/[0-9]{8}/([0-9]{5})-([0-9]{6})(-loads)?")


@dataclass(frozen=True)
class Claim:
    """A process's right to its rank, until a newer claim fences it."""

    rank: int
    attempt: int
    incarnation: int
    epoch: int
    loads: bool = False
    """Whether the others know that the process cannot contribute yet."""


def shared_claim(board: Board, group: InnerGroup, name: str, make: Callable[[], Claim]) -> Claim:
    """The claim that the group's first process makes, for all its processes; `name` is new on the board.

    Raises:
        BoardError: the others cannot be reached.
    """
    if group.is_first:
        claim = make()
        from_first(board, group, f"claim/{name}", lambda: asdict(claim))
        return claim
    # Only here, because it takes as long as the import of half of this package.
    return TypeAdapter(Claim).validate_python(from_first(board, group, f"claim/{name}", lambda: None))


def claim_rank(store: Store, run: str, rank: int, attempt: int, last: Commit | None = None) -> Claim:
    """Claim `rank` for this process, as the next incarnation of `attempt`. Supersedes all earlier claims.

    Args:
        last: of the run's last round, whose claims are known to exist. The process loads a state first, and is not
            waited for until it renews the claim. None: before the first round.

    Raises:
        FencedError: a newer attempt holds the rank.
    """
    epoch, loads = (0, False) if last is None else (last.epoch_of(rank), True)
    holder = _read_claim(store, rank, epoch) if epoch else None
    nonce = uuid.uuid4().hex
    while True:
        while (later := _read_claim(store, rank, epoch + 1)) is not None:
            epoch, holder = epoch + 1, later
            if later.nonce == nonce:  # our create succeeded although its answer was lost
                return Claim(rank, attempt, later.incarnation, epoch, loads)
        if holder is not None and holder.attempt > attempt:
            raise FencedError(rank, attempt, 1)
        incarnation = holder.incarnation + 1 if holder is not None and holder.attempt == attempt else 1
        document = ClaimDocument(run=run, rank=rank, attempt=attempt, incarnation=incarnation, nonce=nonce, loads=loads)
        if _create(store, document, epoch + 1):
            return Claim(rank, attempt, incarnation, epoch + 1, loads)


def succeed_claim(store: Store, run: str, claim: Claim, finish: Finish | None = None, *, loads: bool = False) -> Claim:
    """Claim the rank again for the same process: the others, which trained without it, then wait for it again.

    With a `finish` it gives the rank up, because it has finished: the others no longer wait for it. Nor do they if it
    `loads`: then whoever claims the rank next will have to, because this process ends.

    Raises:
        FencedError: another process has claimed the rank since.
    """
    nonce = uuid.uuid4().hex
    document = ClaimDocument(
        run=run,
        rank=claim.rank,
        attempt=claim.attempt,
        incarnation=claim.incarnation,
        nonce=nonce,
        finish=finish,
        loads=loads,
    )
    if not _create(store, document, claim.epoch + 1):
        found = _read_claim(store, claim.rank, claim.epoch + 1)
        if found is None or found.nonce != nonce:
            raise FencedError(claim.rank, claim.attempt, claim.incarnation)
    return Claim(claim.rank, claim.attempt, claim.incarnation, claim.epoch + 1)


def announce(store: Store, claim: Claim, round_: int) -> None:
    """Let the others find `claim`, which is made, when they make the round after `round_`."""
    create_once(store, rendezvous_keys.announced(round_, claim.rank, claim.epoch, claim.loads), b"")


def announced(store: Store, round_: int) -> list[Claim]:
    """The claims that were announced after `round_`, as far as the names of objects say: of no attempt."""
    folder = rendezvous_keys.announced_after(round_)
    found = (_ANNOUNCED.fullmatch(key) for key in store.keys(folder, rendezvous_keys.announced_after(round_ + 1)))
    return [Claim(int(one[1]), 0, 0, int(one[2]), loads=one[3] is not None) for one in found if one is not None]


@dataclass(frozen=True)
class Holder:
    """The last claim of a rank as another process finds it; `finish` if its process has given the rank up.

    `loads`: its process cannot contribute yet, and claims the rank again when it can.
    """

    epoch: int
    finish: Finish | None
    loads: bool = False


def newer_holder(store: Store, rank: int, epoch: int) -> Holder | None:
    """The last claim of `rank`, where it is later than `epoch`; None where it is not. One read for each claim.

    A claim that cannot be read fences as well as any other.
    """
    holder: Holder | None = None
    while True:
        try:
            found = _read_claim(store, rank, epoch + 1)
        except RendezvousError as error:
            log.warning("event=unreadable-claim rank=%d reason=%r", rank, str(error))
            finish, loads = None, False
        else:
            if found is None:
                return holder
            loads = found.loads
            finish = found.finish if found.finish and found.finish.rank == rank else None
        epoch += 1
        holder = Holder(epoch, finish, loads)


def check_claim(store: Store, claim: Claim) -> None:
    """Return if `claim` still holds.

    Raises:
        FencedError: a newer claim exists.
    """
    if is_superseded(store, claim.rank, claim.epoch):
        raise FencedError(claim.rank, claim.attempt, claim.incarnation)


def is_superseded(store: Store, rank: int, epoch: int) -> bool:
    """Whether there is a claim after `epoch`."""
    return store.exists(rendezvous_keys.claim(rank, epoch + 1))


def _create(store: Store, document: ClaimDocument, epoch: int) -> bool:
    if epoch > EPOCH_MAX:
        message = (
            f"Rank {document.rank} has been claimed {EPOCH_MAX} times, the maximum: its process restarts in a loop."
        )
        raise RendezvousError(message)
    return create_once(store, rendezvous_keys.claim(document.rank, epoch), document.to_json())


def _read_claim(store: Store, rank: int, epoch: int) -> ClaimDocument | None:
    return stored_document(store, rendezvous_keys.claim(rank, epoch), ClaimDocument)
