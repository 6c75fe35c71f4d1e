"""The runs that have ended, by the days on which they began: what Muster has written for lists."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple

from muster.client.aws.bucket_objects import BucketObjects, Item, readers
from muster.contract.run.ended_run import ENDED, EndedRun, EndedRuns, key_of_day


class _Read(NamedTuple):
    etag: str
    day: EndedRuns


class EndedDays:
    """Reads each version of a day once, however often it is asked for."""

    def __init__(self, objects: BucketObjects) -> None:
        self._objects = objects
        self._read: dict[str, _Read] = {}

    def since(self, oldest: datetime) -> Mapping[str, EndedRun]:
        """The runs that began since the day of `oldest` and have ended, by the ARNs of their executions.

        One LIST, and one GET for each day that has changed.

        Raises:
            DocumentError: a day cannot be read, for instance because a newer version of Muster has written it.
        """
        first = key_of_day(oldest.astimezone(UTC).isoformat())
        # The days' keys are sorted: the one before the first day's, or none, ends before it.
        listed = list(self._objects.items_after(ENDED, first.removesuffix(".json")))
        with ThreadPoolExecutor(max_workers=readers(len(listed))) as pool:
            days = list(pool.map(self._current, listed))
        self._read |= {item.key: read for item, read in zip(listed, days, strict=True)}
        return {run.execution_arn: run for read in days for run in read.day.runs}

    def _current(self, item: Item) -> _Read:
        before = self._read.get(item.key)
        if before is not None and before.etag == item.etag:
            return before
        return _Read(item.etag, EndedRuns.from_json(self._objects.read(item.key) or b"", item.key))
