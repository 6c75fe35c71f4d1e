"""Small documents in the store, and the commits among them: reading, writing and amending."""

from __future__ import annotations

from typing import TypeVar

from muster.contract.document import StoredDocument
from muster.contract.errors import DocumentError
from muster.contract.run.commit import Commit, Exclusion
from muster.replica.replica_errors import RendezvousError
from muster.replica.rounds.quorum import needed_of
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.store.transport import ObjectMissingError, Store, create_once
from muster.replica.wire import rendezvous_keys

D = TypeVar("D", bound=StoredDocument)


def stored_document(store: Store, key: str, kind: type[D]) -> D | None:
    """A document; None if there is none.

    Raises:
        RendezvousError: the object is not such a document.
    """
    try:
        body = bytes(store.read(key).body)
    except ObjectMissingError:
        return None
    try:
        return kind.from_json(body, store.uri(key))
    except DocumentError as error:
        raise RendezvousError(str(error)) from None


def read_commit(context: RoundContext, round_: int, revision: int = 0) -> Commit | None:
    """A round's commit or one of its amendments; None if there is none yet.

    Raises:
        RendezvousError: the object is not a commit of this round.
    """
    key = rendezvous_keys.commit(round_, revision)
    commit = stored_document(context.store, key, Commit)
    if commit is None:
        return None
    ranks = [member.rank for member in commit.members]
    in_order = ranks == sorted(set(ranks)) and ranks[-1] < context.quorum.replicas
    known = all(finish.rank < context.quorum.replicas for finish in commit.finished)
    fits = known and (commit.run, commit.round, commit.revision) == (context.run, round_, revision)
    seats = len(commit.epochs)
    # Of an elastic run it names no rank above the last one that has been claimed.
    named = ranks[-1] < seats < context.quorum.replicas if context.quorum.is_elastic else False
    if not in_order or not fits or not (named or seats == context.quorum.replicas):
        message = f"{context.store.uri(key)} is not a commit of round {round_} of the run {context.run}."
        raise RendezvousError(message)
    return commit


def read_last_revision(context: RoundContext, round_: int) -> Commit | None:
    """The last amendment of a round's commit, or the commit itself; raises as `read_commit`."""
    commit = read_commit(context, round_)
    while commit is not None and (later := read_commit(context, round_, commit.revision + 1)) is not None:
        commit = later
    return commit


def write_commit(context: RoundContext, commit: Commit) -> Commit | None:
    """Store a commit or an amendment. Returns the stored one, perhaps another's (None if it is not visible yet)."""
    if not create_once(context.store, rendezvous_keys.commit(commit.round, commit.revision), commit.to_json()):
        return read_commit(context, commit.round, commit.revision)
    log.info("round=%d event=committed revision=%d participants=%d", commit.round, commit.revision, len(commit.members))
    return commit


def amended(
    commit: Commit, rejected: tuple[Exclusion, ...], min_participants: int, late: tuple[int, ...] = ()
) -> Commit:
    """The commit without `rejected` and `late` members, as its next revision: a void one if too few are left.

    Who is late is absent, as those who have given nothing: the next round does not wait for it until it claims its rank
    again. A void round keeps its members where none is left: they store the snapshot of the round.
    """
    gone = {item.rank for item in rejected} | set(late)
    members = tuple(member for member in commit.members if member.rank not in gone)
    update = {
        "members": members or commit.members,
        "void": len(members) < needed_of(min_participants, len(commit.finished)),
        "excluded": commit.excluded + rejected,
        "excluded_total": commit.excluded_total + len(rejected),
        "absent": tuple(sorted({*commit.absent, *late})),
        "revision": commit.revision + 1,
    }
    changed = commit.model_copy(update=update)
    if commit.samples is None:
        return changed
    return changed.model_copy(update={"samples": max(0.0, commit.samples - commit.counted + changed.counted)})
