"""The roll-ups of runs: what Muster has recorded about their replicas."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from muster.client.aws.bucket_objects import BucketObjects, Item, readers
from muster.contract.layout import RunLayout
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard

_RUNS_KEPT = 16


class _Read(NamedTuple):
    etag: str
    shard: RollUpShard


class RollUps:
    """Reads each version of a shard once, however often and from however many objects a run is looked at."""

    def __init__(self, objects: BucketObjects) -> None:
        self._objects = objects
        self._read: dict[str, dict[str, _Read]] = {}

    def of_run(self, run: str) -> Mapping[int, ReplicaEntry]:
        """The entries of the run's replicas by rank: one LIST, and one GET for each shard that has changed.

        Raises:
            DocumentError: a shard cannot be read, for instance because a newer version of Muster has written it.
        """
        prefix = RunLayout(run).roll_up
        before = self._read.get(run, {})
        listed = list(self._objects.items_after(prefix, prefix))
        with ThreadPoolExecutor(max_workers=readers(len(listed))) as pool:
            shards = list(pool.map(lambda item: self._current(item, before.get(item.key)), listed))
        if len(self._read) >= _RUNS_KEPT:
            self._read.clear()
        self._read[run] = {item.key: read for item, read in zip(listed, shards, strict=True)}
        return {entry.rank: entry for read in shards for entry in read.shard.replicas}

    def _current(self, item: Item, before: _Read | None) -> _Read:
        if before is not None and before.etag == item.etag:
            return before
        # A version that is written after the listing has another ETag there, and is read again at the next look.
        return _Read(item.etag, RollUpShard.from_json(self._objects.read(item.key) or b"", item.key))
