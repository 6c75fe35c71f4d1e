"""Reading and amending what was agreed."""

from __future__ import annotations

from muster.contract.errors import DocumentError
from muster.contract.run.commit import Commit, Exclusion
from muster.replica.errors import RendezvousError
from muster.replica.rounds.round_context import Meeting, log
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys


def read_commit(meeting: Meeting, round_: int, revision: int = 0) -> Commit | None:
    """A round's commit or an amendment of it; None while there is none.

    Raises:
        RendezvousError: what lies there is no commit of this round.
    """
    key = keys.commit(round_, revision)
    try:
        body = bytes(meeting.store.read(key).body)
    except ObjectMissingError:
        return None
    uri = meeting.store.uri(key)
    try:
        commit = Commit.from_json(body, uri)
    except DocumentError as error:
        raise RendezvousError(str(error)) from None
    ranks = [member.rank for member in commit.members]
    in_order = ranks == sorted(set(ranks)) and ranks[-1] < meeting.quorum.replicas
    fits = (commit.run, commit.round, commit.revision) == (meeting.run, round_, revision)
    if not in_order or not fits or len(commit.epochs) != meeting.quorum.replicas:
        message = f"{uri} is not a commit of round {round_} of the run {meeting.run}."
        raise RendezvousError(message)
    return commit


def read_last_revision(meeting: Meeting, round_: int) -> Commit | None:
    """A round's commit with all that its amendments found; raises as `read_commit`."""
    commit = read_commit(meeting, round_)
    while commit is not None and (later := read_commit(meeting, round_, commit.revision + 1)) is not None:
        commit = later
    return commit


def write_commit(meeting: Meeting, commit: Commit) -> Commit | None:
    """Store a commit or an amendment; the first one stands and is returned (None when it cannot be seen yet)."""
    try:
        meeting.store.create(keys.commit(commit.round, commit.revision), commit.to_json())
    except ObjectExistsError:
        return read_commit(meeting, commit.round, commit.revision)
    log.info("round=%d event=committed revision=%d participants=%d", commit.round, commit.revision, len(commit.members))
    return commit


def amended(commit: Commit, rejected: tuple[Exclusion, ...]) -> Commit:
    """The commit without `rejected` members, as its next revision.

    Raises:
        RendezvousError: nobody would be left.
    """
    gone = {item.rank for item in rejected}
    members = tuple(member for member in commit.members if member.rank not in gone)
    excluded = commit.excluded + rejected
    if not members:
        reasons = "; ".join(f"rank {item.rank}: {item.reason}" for item in excluded)
        message = f"Round {commit.round} has no usable contribution ({reasons})."
        raise RendezvousError(message)
    update = {
        "members": members,
        "excluded": excluded,
        "excluded_total": commit.excluded_total + len(rejected),
        "revision": commit.revision + 1,
    }
    return commit.model_copy(update=update)
