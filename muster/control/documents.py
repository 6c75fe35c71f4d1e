"""Reading and writing the documents of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from muster.contract.errors import DocumentError, MissingDocumentError
from muster.contract.layout import RunLayout
from muster.contract.run.fence import Fence
from muster.contract.run.plan import Plan
from muster.contract.run.record import Record
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard, ranks_of, shard_count, shard_of
from muster.control.aws.store import DocumentStore
from muster.control.runtime.parallel import in_parallel

if TYPE_CHECKING:
    from muster.contract.run.continuation import Continuation
    from muster.contract.run.result import Result

Change = Callable[[Record | None], Record | None]


class Seen(NamedTuple):
    """A record and the ETag of the version that was read; both None where there is no record."""

    record: Record | None
    etag: str | None


class Updated(NamedTuple):
    """The record after an update, and whether this update wrote it: then `before` is the record that it replaced."""

    record: Record | None
    written: bool
    before: Record | None = None


class PlannedRun(Protocol):
    """A run, for those who need no more than its plan and its documents."""

    @property
    def plan(self) -> Plan:
        """Its plan."""

    @property
    def documents(self) -> RunDocuments:
        """Its documents."""


class RunDocuments:
    """The documents of one run."""

    def __init__(self, store: DocumentStore, run: str) -> None:
        self.store = store
        self.run = run
        self.layout = RunLayout(run)

    def plan(self) -> Plan | None:
        """The plan; None where there is no such run."""
        return self.store.document(Plan, self.layout.plan)

    def require_plan(self) -> Plan:
        """The plan of a run that must have one.

        Raises:
            MissingDocumentError: there is none.
        """
        plan = self.plan()
        if plan is None:
            raise MissingDocumentError(self.store.uri(self.layout.plan))
        return plan

    def fence(self) -> Fence | None:
        """The fence; None where it is not raised."""
        return self.store.document(Fence, self.layout.fence)

    def raise_fence(self, fence: Fence) -> Fence:
        """Write the fence. The first one written is valid and is returned."""
        return self.store.first(self.layout.fence, fence)

    def cancel(self, fence: Fence) -> Fence:
        """Write the fence of a cancellation, also over one with another cause: a cancelled run is not continued."""
        return self.store.change(Fence, self.layout.fence, lambda before: before.cancelled(fence) if before else fence)

    def result(self) -> Result | None:
        """The result; None where the run is not settled."""
        found = self.store.get(self.layout.result)
        if found is None:
            return None
        from muster.contract.run.result import Result  # noqa: PLC0415 - no launch and no status of a job needs it

        return Result.from_json(found.body, self.store.uri(self.layout.result))

    def is_announced(self) -> bool:
        """Whether the run's end was announced."""
        return self.store.get(self.layout.announced) is not None

    def mark_announced(self) -> None:
        """Write that the run's end was announced."""
        self.store.create(self.layout.announced, b"{}")

    def is_finished(self) -> bool:
        """Whether the run's end is complete: settled, announced, continued where its policy says so."""
        return self.store.get(self.layout.finished) is not None

    def mark_finished(self) -> None:
        """Write that the run's end is complete."""
        self.store.create(self.layout.finished, b"{}")

    def name_continuation(self, continued_by: Continuation) -> Continuation:
        """Write which run continues this one. The first one written is valid and is returned."""
        return self.store.first(self.layout.continued_by, continued_by)

    def record(self, rank: int) -> Seen:
        """The current record of a replica."""
        key = self.layout.record(rank)
        found = self.store.get(key)
        if found is None:
            return Seen(None, None)
        return Seen(Record.from_json(found.body, self.store.uri(key)), found.etag)

    def update_record(self, rank: int, change: Change, seen: Seen | None = None) -> Updated:
        """Compare-and-swap: `change` gets the current record and returns the next, or None to leave it.

        `change` is pure. It is called again with the newer record whenever another writer was first. `seen`, if given,
        replaces the first read: a record that has changed since then is read before anything is written.

        S3 may carry out a write whose answer is lost: the next try is refused, and the record is what was written.
        """
        key = self.layout.record(rank)
        sent: Updated | None = None
        for _ in self.store.attempts(self.store.uri(key)):
            before, etag = seen or self.record(rank)
            if sent is not None and before == sent.record:
                return sent
            after = change(before)
            if after is None or after == before:
                return Updated(before, written=False)
            after = after.model_copy(update={"revision": before.revision + 1 if before else 1})
            sent = Updated(after, written=True, before=before)
            if self.store.put(key, after.to_json(), etag):
                return sent
            seen = None
        raise AssertionError  # attempts() ends by raising

    def write_entry(self, replicas: int, record: Record) -> None:
        """Write the roll-up's entry for `record` into its shard, unless the shard has it or a newer one.

        The entry follows from the record alone, so a repeated call repairs a lost write. A function that cannot write
        it fails and is called again, before the workflow learns what the record says. `replicas` is the run's.

        Raises:
            ConflictError: other functions changed the shard during every try; the call may be repeated.
        """
        number = shard_of(record.rank, replicas)
        key = self.layout.roll_up_shard(number)
        for _ in self.store.attempts(self.store.uri(key)):
            found = self.store.get(key)
            shard = None if found is None else _shard(found.body, self.store.uri(key))
            after = (shard or self._rebuilt(ranks_of(number, replicas))).updated([ReplicaEntry.of(record)])
            if after is shard:
                return
            if self.store.put(key, after.to_json(), found.etag if found else None):
                return

    def entries(self, replicas: int) -> list[ReplicaEntry]:
        """The roll-up's entries. A replica has none before its first launch, or where its shard is damaged."""

        def read(number: int) -> tuple[ReplicaEntry, ...]:
            key = self.layout.roll_up_shard(number)
            found = self.store.get(key)
            shard = None if found is None else _shard(found.body, self.store.uri(key))
            return () if shard is None else shard.replicas

        shards = in_parallel(read, range(shard_count(replicas)))
        return [entry for shard in shards for entry in shard]

    def _rebuilt(self, ranks: range) -> RollUpShard:
        """A shard made from the records: the run may have started before there was a roll-up."""

        def entry(rank: int) -> ReplicaEntry | None:
            try:
                record = self.record(rank).record
            except DocumentError:
                # The entry of one damaged record is missing; those of the others are not.
                return None
            return None if record is None else ReplicaEntry.of(record)

        found = in_parallel(entry, ranks) if len(ranks) > 1 else []
        return RollUpShard(run=self.run).updated(item for item in found if item is not None)


def _shard(body: bytes, uri: str) -> RollUpShard | None:
    """The shard. None where it is damaged: it can be made again."""
    try:
        return RollUpShard.from_json(body, uri)
    except DocumentError:
        return None
