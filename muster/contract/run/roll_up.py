"""The roll-up of a run: its records without their task tokens, in a few objects that clients read.

A client lists the shards, and reads those whose ETag has changed: so a look at a run costs the same for ten replicas
and for ten thousand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from pydantic import Field

from muster.contract.document import StoredDocument, StoredPart
from muster.contract.run.attempt import Attempt, parkings
from muster.contract.run.record import Decision, Record

# A replica's entry must stay small: a shard is written again whenever one of its replicas changes.
ATTEMPTS_KEPT = 10
_FIRST_STEPS, _LAST_STEPS = 8, 24  # of an attempt's history; the first ones show since when it has an instance
_REPLICAS_PER_SHARD = 32
_SHARDS_MIN = 32


class ReplicaEntry(StoredPart):
    """What a record says about its replica. Derived from the record alone."""

    rank: int = Field(ge=0)
    revision: int = Field(ge=0, description="of the record; an entry is only replaced by one with a higher revision")
    attempts: tuple[Attempt, ...] = Field(
        min_length=1, description="the latest ones; of a long history the first and the last steps"
    )
    parkings: int = Field(
        default=0, ge=0, description="after how many of all its attempts it was parked until the next one"
    )
    decision: Decision | None = Field(default=None, description="what follows the end of the latest attempt")

    @classmethod
    def of(cls, record: Record) -> Self:
        """The entry of a replica. Pure."""
        return cls(
            rank=record.rank,
            revision=record.revision,
            attempts=tuple(
                _shortened(attempt, is_last=attempt is record.current) for attempt in record.attempts[-ATTEMPTS_KEPT:]
            ),
            parkings=parkings(record.attempts),
            decision=record.decision,
        )

    def says_the_same(self, other: Self) -> bool:
        """Whether the two differ in their revision at most."""
        return self.model_copy(update={"revision": other.revision}) == other


class RollUpShard(StoredDocument):
    """The entries of some of the replicas of a run. Every write is a compare-and-swap on the object's ETag."""

    run: str
    replicas: tuple[ReplicaEntry, ...] = Field(default=(), description="by rank")

    def updated(self, entries: Iterable[ReplicaEntry]) -> Self:
        """This shard with those of `entries` that are newer and say something new; itself where there are none."""
        known = {entry.rank: entry for entry in self.replicas}
        newer = {entry.rank: entry for entry in entries if _replaces(known.get(entry.rank), entry)}
        if not newer:
            return self
        return self.model_copy(update={"replicas": tuple(entry for _, entry in sorted({**known, **newer}.items()))})


def shard_count(replicas: int) -> int:
    """How many shards the roll-up of a run with so many replicas has.

    At most 32 replicas share a shard, so that few functions write the same object at the same time. 10,000 replicas
    have 313 shards: ListObjectsV2 returns them in one page of 1,000.
    """
    return min(replicas, max(_SHARDS_MIN, -(-replicas // _REPLICAS_PER_SHARD)))


def shard_of(rank: int, replicas: int) -> int:
    """The shard of a replica. Neighbours, which are launched one after the other, have different shards."""
    return rank % shard_count(replicas)


def ranks_of(shard: int, replicas: int) -> range:
    """The replicas of a shard."""
    return range(shard, replicas, shard_count(replicas))


def _replaces(known: ReplicaEntry | None, entry: ReplicaEntry) -> bool:
    return known is None or (entry.revision >= known.revision and not known.says_the_same(entry))


def _shortened(attempt: Attempt, *, is_last: bool) -> Attempt:
    steps = attempt.history
    if len(steps) > _FIRST_STEPS + _LAST_STEPS:
        steps = (*steps[:_FIRST_STEPS], *steps[-_LAST_STEPS:])
    return attempt.for_result(is_last=is_last).model_copy(update={"history": steps})
