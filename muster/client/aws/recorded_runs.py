"""What Muster has recorded about runs: the roll-ups of their replicas, and the runs that have ended, by days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Generic, NamedTuple, TypeVar

from muster.client.aws.bucket_objects import BucketObjects, Item, readers
from muster.client.aws.cloud import Cloud
from muster.contract.layout import RunLayout
from muster.contract.run.ended_run import ENDED, EndedRun, EndedRuns, key_of_day
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard

_RUNS_KEPT = 16
D = TypeVar("D")


class _Read(NamedTuple, Generic[D]):
    etag: str
    document: D


class RollUps:
    """Reads each version of a shard once, however often and from however many objects a run is looked at."""

    def __init__(self, cloud: Cloud) -> None:
        self._objects = cloud.objects
        self._read: dict[str, dict[str, _Read[RollUpShard]]] = {}

    def of_run(self, run: str) -> Mapping[int, ReplicaEntry]:
        """The entries of the run's replicas by rank: one LIST, and one GET for each shard that has changed.

        Raises:
            DocumentError: a shard cannot be read, for instance because a newer version of Muster has written it.
        """
        prefix = RunLayout(run).roll_up
        shards = _read_after(prefix, prefix, self._objects, self._read.get(run, {}), RollUpShard.from_json)
        if len(self._read) >= _RUNS_KEPT:
            self._read.clear()
        self._read[run] = shards
        return {entry.rank: entry for read in shards.values() for entry in read.document.replicas}


class EndedDays:
    """Reads each version of a day once, however often it is asked for."""

    def __init__(self, cloud: Cloud) -> None:
        self._objects = cloud.objects
        self._read: dict[str, _Read[EndedRuns]] = {}

    def since(self, oldest: datetime) -> Mapping[str, EndedRun]:
        """The runs that began since the day of `oldest` and have ended, by the ARNs of their executions.

        One LIST, and one GET for each day that has changed.

        Raises:
            DocumentError: a day cannot be read, for instance because a newer version of Muster has written it.
        """
        first = key_of_day(oldest.astimezone(UTC).isoformat())
        # The days' keys are sorted: the one before the first day's, or none, ends before it.
        days = _read_after(ENDED, first.removesuffix(".json"), self._objects, self._read, EndedRuns.from_json)
        self._read |= days
        return {run.execution_arn: run for read in days.values() for run in read.document.runs}


def _read_after(
    prefix: str, key: str, objects: BucketObjects, before: Mapping[str, _Read[D]], parse: Callable[[bytes, str], D]
) -> dict[str, _Read[D]]:
    """The documents below `prefix` that are listed after `key`; those of `before` that have not changed as they are."""

    def current(item: Item) -> _Read[D]:
        known = before.get(item.key)
        if known is not None and known.etag == item.etag:
            return known
        # A version that is written after the listing has another ETag there, and is read again at the next look.
        return _Read(item.etag, parse(objects.read(item.key) or b"", item.key))

    listed = list(objects.items_after(prefix, key))
    with ThreadPoolExecutor(max_workers=readers(len(listed))) as pool:
        return {item.key: read for item, read in zip(listed, pool.map(current, listed), strict=True)}
