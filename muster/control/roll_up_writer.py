"""Writing the roll-up of a run. Each function that writes a record updates the replica's entry afterwards.

The entry follows from the record alone, so a repeated call repairs a lost write. A function that cannot write it fails
and is called again, before the workflow learns what the record says.
"""

from __future__ import annotations

from muster.contract.errors import DocumentError
from muster.contract.run.record import Record
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard, ranks_of, shard_of
from muster.control.documents import RunDocuments
from muster.control.runtime.parallel import in_parallel


def write_entry(documents: RunDocuments, replicas: int, record: Record) -> None:
    """Write the entry for `record` into its shard, unless the shard has it or a newer one.

    `replicas` is the run's.

    Raises:
        ConflictError: other functions changed the shard during every try; the call may be repeated.
    """
    store, number = documents.store, shard_of(record.rank, replicas)
    key = documents.layout.roll_up_shard(number)
    ranks = ranks_of(number, replicas)
    for _ in store.attempts(store.uri(key)):
        found = store.get(key)
        shard = None if found is None else _read(found.body, store.uri(key))
        before = shard or _rebuilt(documents, ranks)
        after = before.updated([ReplicaEntry.of(record)])
        if after is shard:
            return
        if store.put(key, after.to_json(), found.etag if found else None):
            return


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
