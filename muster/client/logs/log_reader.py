"""Reading a run's lines from CloudWatch Logs, once or until the run ends.

One FilterLogEvents call searches the streams of all training jobs, in time order; one more each other log group. A
line can arrive after newer ones of other replicas, so a follower rereads the last seconds at every poll, and the last
minutes every minute or so. It recognises what it has seen by the events' ids.
"""

from __future__ import annotations

import heapq
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from muster.client.aws.cloud import Cloud
from muster.client.aws.log_events import LogEvents
from muster.client.client_errors import OUTAGE_SECONDS, ClientError, DeniedError, OutageError
from muster.client.logs.log_lines import DEEP_SECONDS, LogEvent, LogLine, LogQuery, LogSource, Merge

if TYPE_CHECKING:
    from muster.contract.run.attempt import Attempt

POLL_SECONDS = 1.0
# FilterLogEvents: 5 calls per second in an account and region, shared by all its users.
_POLL_SECONDS_MAX = 5.0
_REST_SECONDS = 0.2
_HOLD_MS = 500
_LOOK_BACK_MS = 5_000
_DEEP_MS = DEEP_SECONDS * 1000
_DEEP_EVERY = 60  # polls: such a poll reads minutes of lines again, which delays new ones
_QUIET_POLLS = 2  # after the end: the log agent's last batch arrives after the job's end
_MISSING_EVERY = 20  # polls without a line of another backend, after which the run is looked at
# For the last lines: the last minute is read first, then growing slices before it, for runs that write little.
_SLICE_MS = 60_000
_SLICES_GROW = 8
_BATCH = 1_000  # events of several log groups that are merged at once


class OtherLogs(Protocol):
    """The logs of those of the asked replicas that are no training jobs."""

    are_all: bool
    """Whether none of the asked replicas is a training job."""

    def sources(self, query: LogQuery) -> Collection[LogSource]:
        """Where their lines are, as far as that is known."""

    def missing(self, attempts: Callable[[], Mapping[int, Iterable[Attempt]]]) -> ClientError | None:
        """What to say where no line was found: why there is none, if one should have come by now.

        `attempts` looks at those of each replica.
        """


class LogReader:
    """Reads the lines of a query. With `attempts` it is an error where `others` have none, and should have by now."""

    def __init__(
        self,
        cloud: Cloud,
        query: LogQuery,
        others: OtherLogs | None = None,
        attempts: Callable[[], Mapping[int, Iterable[Attempt]]] | None = None,
    ) -> None:
        self._cloud, self._query, self._logs = cloud, query, cloud.part(LogEvents)
        self._others, self._attempts = others, attempts
        self._are_all_others = others is not None and others.are_all
        self._has_others = False
        self._silent: ClientError | None = None

    def since(self, at: datetime) -> LogReader:
        """A reader of the lines from `at` on."""
        return LogReader(self._cloud, replace(self._query, since=at), self._others, self._attempts)

    def read_lines(self) -> Iterator[LogLine]:
        """The lines that exist now, in time order.

        Raises:
            NoClusterLogsError: a cluster has none, which is said after those of the others.
            ClientError: a region does not answer or denies the call, which is said after them, too.
        """
        yield from self._lines_between(self._query.since_ms, self._query.until_ms)
        self._complain()

    def last_lines(self, count: int, end: datetime) -> list[LogLine]:
        """The last `count` lines until `end`, or all if there are fewer; earlier ones are not read."""
        first_ms, until_ms, width = self._query.since_ms or 0, int(end.timestamp() * 1000), _SLICE_MS
        found: list[LogLine] = []
        while len(found) < count and until_ms >= first_ms:
            since_ms = max(first_ms, until_ms - width)
            found = [*deque(self._lines_between(since_ms, until_ms), min(count - len(found), sys.maxsize)), *found]
            until_ms, width = since_ms - 1, width * _SLICES_GROW
        if not found:
            self._complain()
        return found

    def _complain(self) -> None:
        if self._silent is not None:
            raise self._silent
        if self._others is None or self._attempts is None or (self._other_sources() and self._has_others):
            return
        if (error := self._others.missing(self._attempts)) is not None:
            raise error

    def _other_sources(self) -> Collection[LogSource]:
        return () if self._others is None else self._others.sources(self._query)

    def _lines_between(self, since_ms: int | None, until_ms: int | None) -> Iterator[LogLine]:
        merge = Merge(_HOLD_MS)
        for page in self._pages(since_ms, until_ms):
            merge.add(page)
            yield from self._query.lines(merge.release())
        yield from self._query.lines(merge.release(everything=True))

    def _pages(self, since_ms: int | None, until_ms: int | None) -> Iterator[list[LogEvent]]:
        """The events of all log groups in time order, some at a time."""
        self._silent = None
        others = self._other_sources()
        sources = [*others] if self._are_all_others else [self._query.source, *others]
        if sources == [self._query.source]:
            yield from self._logs.pages(sources[0], since_ms, until_ms)
            return
        # Several log groups: their events must not wait for each other's last page.
        merged = heapq.merge(*(self._events(one, since_ms, until_ms) for one in sources), key=lambda event: event.at_ms)
        while batch := list(islice(merged, _BATCH)):
            yield batch

    def _events(self, source: LogSource, since_ms: int | None, until_ms: int | None) -> Iterator[LogEvent]:
        try:
            yield from self._read(source, since_ms, until_ms)
        except (OutageError, DeniedError) as error:
            if source.region is None:
                raise
            # The others' lines are read all the same.
            self._silent = ClientError(f"The lines from {source.region} are missing. {error}")

    def _read(self, source: LogSource, since_ms: int | None, until_ms: int | None) -> Iterator[LogEvent]:
        for event in chain.from_iterable(self._logs.pages(source, since_ms, until_ms)):
            if source.read is None:
                yield event
            else:
                self._has_others = True
                # Ids are unique in a log group.
                yield source.read(event)._replace(id=f"{source.group} {event.id}")

    def follow_lines(self, has_ended: Callable[[], bool]) -> Iterator[LogLine]:
        """The lines that exist and new ones, until `has_ended` and none arrive any more, or until `query.until`.

        Raises:
            NoClusterLogsError: a cluster has none; where other lines may come, that is said after the last of them.
            ClientError: AWS refuses, or does not answer for ten minutes.
        """
        query = self._query
        merge, polls, quiet, pause = Merge(_HOLD_MS), 0, 0, POLL_SECONDS
        seen_at = time.monotonic()
        while quiet < _QUIET_POLLS:
            fresh, began = 0, time.monotonic()
            try:
                # Checked before reading: a line written before the end is then read after it.
                over = has_ended() or (query.until is not None and datetime.now(UTC) > query.until.astimezone(UTC))
                since = self._since(merge, deep=over or polls % _DEEP_EVERY == 0)
                for page in self._pages(since, query.until_ms):
                    fresh += merge.add(page)
                    yield from query.lines(merge.release())
                if self._are_all_others and polls % _MISSING_EVERY == _MISSING_EVERY - 1:
                    self._complain()
                seen_at = time.monotonic()
            except OutageError:
                if time.monotonic() - seen_at > OUTAGE_SECONDS:
                    raise
                over = False
            yield from query.lines(merge.release(everything=fresh == 0))
            merge.forget((merge.newest_ms or 0) - _DEEP_MS)
            polls += 1
            quiet = quiet + 1 if over and fresh == 0 else 0
            # Poll often while lines arrive, seldom while none do.
            pause = POLL_SECONDS if fresh or over else min(pause * 1.5, _POLL_SECONDS_MAX)
            if quiet < _QUIET_POLLS:
                # The time that the poll itself took counts as waiting, so polls come at an even rate.
                time.sleep(max(pause - (time.monotonic() - began), _REST_SECONDS))
        self._complain()

    def _since(self, merge: Merge, *, deep: bool) -> int | None:
        if merge.newest_ms is None:
            return self._query.since_ms
        return max(merge.newest_ms - (_DEEP_MS if deep else _LOOK_BACK_MS), self._query.since_ms or 0)
