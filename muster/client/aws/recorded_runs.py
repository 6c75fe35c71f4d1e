"""What Muster has recorded about runs: the roll-ups of their replicas, and the runs that have ended, by days."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

from muster.client.aws.bucket_objects import Item, readers
from muster.client.aws.cloud import Cloud
from muster.contract.layout import RunLayout
from muster.contract.run.ended_run import ENDED, EndedRun, EndedRuns, key_of_day
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard

_DOCUMENTS_KEPT = 1_000
D = TypeVar("D")


class RecordedRuns:
    """Reads each version of a document once, however often and from however many objects a run is looked at."""

    def __init__(self, cloud: Cloud) -> None:
        self._objects = cloud.objects
        self._read: dict[str, tuple[str, Any]] = {}  # the ETag and the document of each key

    def replicas(self, run: str) -> Mapping[int, ReplicaEntry]:
        """The entries of the run's replicas by rank: one LIST, and one GET for each shard that has changed.

        Raises:
            DocumentError: a shard cannot be read, for instance because a newer version of Muster has written it.
        """
        prefix = RunLayout(run).roll_up
        shards = self._after(prefix, prefix, RollUpShard.from_json)
        return {entry.rank: entry for shard in shards for entry in shard.replicas}

    def ended_since(self, oldest: datetime) -> Mapping[str, EndedRun]:
        """The runs that began since the day of `oldest` and have ended, by the ARNs of their executions.

        One LIST, and one GET for each day that has changed.

        Raises:
            DocumentError: a day cannot be read, for instance because a newer version of Muster has written it.
        """
        first = key_of_day(oldest.astimezone(UTC).isoformat())
        # The days' keys are sorted: the one before the first day's, or none, ends before it.
        days = self._after(ENDED, first.removesuffix(".json"), EndedRuns.from_json)
        return {run.execution_arn: run for day in days for run in day.runs}

    def _after(self, prefix: str, key: str, parse: Callable[[bytes, str], D]) -> list[D]:
        """The documents below `prefix` that are listed after `key`."""

        def current(item: Item) -> D:
            etag, document = self._read.get(item.key, ("", None))
            # A version that is written after the listing has another ETag there, and is read again at the next look.
            return document if etag == item.etag else parse(self._objects.read(item.key) or b"", item.key)

        listed = list(self._objects.items_after(prefix, key))
        with ThreadPoolExecutor(max_workers=readers(len(listed))) as pool:
            documents = list(pool.map(current, listed))
        if len(self._read) > _DOCUMENTS_KEPT:
            self._read.clear()
        self._read |= {item.key: (item.etag, found) for item, found in zip(listed, documents, strict=True)}
        return documents
