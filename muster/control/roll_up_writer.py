"""Writing the roll-up of a run. Each function that writes a record updates the replica's entry afterwards.

The entry follows from the record alone, so a repeated call repairs a lost write. A function that cannot write it fails
and is called again, before the workflow learns what the record says.
"""

from __future__ import annotations

from muster.contract.errors import DocumentError
from muster.contract.run.record import Record
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard, ranks_of, shard_of
from muster.control.aws.store import etag_of
from muster.control.documents import RunDocuments, Updated
from muster.control.runtime.parallel import in_parallel


def write_entry(documents: RunDocuments, replicas: int, updated: Updated) -> None:
    """Write the entry for an updated record into its shard, unless the shard has it or a newer one.

    `replicas` is the run's. Most runs have a replica for each shard. There the record that was replaced says what its
    shard holds, so the first try writes without a read: the write itself makes sure of that (compare-and-swap). Where
    the shard holds anything else, because an entry was lost or several functions write it, it is read.

    Raises:
        ConflictError: other functions changed the shard during every try; the call may be repeated.
    """
    record = updated.record
    if record is None:
        return
    store, number = documents.store, shard_of(record.rank, replicas)
    key = documents.layout.roll_up_shard(number)
    ranks = ranks_of(number, replicas)
    if updated.written and len(ranks) == 1 and _follows(documents, key, updated.before, record):
        return
    for _ in store.attempts(store.uri(key)):
        found = store.get(key)
        shard = None if found is None else _read(found.body, store.uri(key))
        before = shard or _rebuilt(documents, ranks)
        after = before.updated([ReplicaEntry.of(record)])
        if after is shard:
            return
        if store.create(key, after.to_json()) if found is None else store.replace(key, after.to_json(), found.etag):
            return


def _follows(documents: RunDocuments, key: str, before: Record | None, record: Record) -> bool:
    """Whether the shard of one replica held the entry for `before`, or nothing, and now holds the one for `record`."""
    entry, store = ReplicaEntry.of(record), documents.store
    empty = RollUpShard(run=documents.run)
    body = empty.updated([entry]).to_json()
    if before is None:
        return store.create(key, body)
    old = ReplicaEntry.of(before)
    left_out = before.decision is not None and before.decision.reruns_at_once
    if left_out or entry.says_the_same(old) or not store.names_md5:
        # Nothing to write where all is well, and only a read shows that; or the ETag is not known without one.
        return False
    return store.replace(key, body, etag_of(empty.updated([old]).to_json()))


def _read(body: bytes, uri: str) -> RollUpShard | None:
    """The shard. None where it is damaged: it can be made again."""
    try:
        return RollUpShard.from_json(body, uri)
    except DocumentError:
        return None


def _rebuilt(documents: RunDocuments, ranks: range) -> RollUpShard:
    """A shard made from the records: the run may have started before there was a roll-up."""

    def entry(rank: int) -> ReplicaEntry | None:
        try:
            record = documents.record(rank).record
        except DocumentError:
            # The entry of one damaged record is missing; those of the others are not.
            return None
        return None if record is None else ReplicaEntry.of(record)

    found = in_parallel(entry, ranks) if len(ranks) > 1 else []
    return RollUpShard(run=documents.run).updated(item for item in found if item is not None)
