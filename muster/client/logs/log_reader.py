"""Reading a run's lines from CloudWatch Logs, once or until the run ends.

FilterLogEvents looks through the streams of all replicas in one call, in time order. A line can arrive behind newer
ones of other replicas, so that a follower reads the last seconds again and again, and now and then the last minutes:
events have an identity, by which it knows what it has seen.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from muster.client.aws.cloud import Cloud
from muster.client.errors import OUTAGE_SECONDS, OutageError
from muster.client.logs.log_lines import DEEP_SECONDS, LogLine, LogQuery, Merge

POLL_SECONDS = 1.0
# FilterLogEvents: 5 calls per second in an account and region, for everybody in it.
_POLL_SECONDS_MAX = 5.0
_REST_SECONDS = 0.2
_HOLD_MS = 500
_LOOK_BACK_MS = 5_000
_DEEP_MS = DEEP_SECONDS * 1000
_DEEP_EVERY = 60  # polls: it reads minutes of lines again, and new ones wait for it
_QUIET_POLLS = 2  # after the end: the log agent's last batch comes behind the job's end
# Of the last lines: a minute is read first, then before it slices that grow, for runs that write little.
_SLICE_MS = 60_000
_SLICES_GROW = 8


def read_lines(cloud: Cloud, query: LogQuery) -> Iterator[LogLine]:
    """The lines that are there, in time order.

    Raises:
        ClientError: the cloud cannot be reached or refuses.
    """
    yield from _lines_between(cloud, query, query.since_ms, query.until_ms)


def last_lines(cloud: Cloud, query: LogQuery, count: int, end: datetime) -> list[LogLine]:
    """The last `count` lines until `end`, or all if there are fewer; what is before them is not read.

    Raises:
        ClientError: the cloud cannot be reached or refuses.
    """
    first_ms, until_ms, width = query.since_ms or 0, int(end.timestamp() * 1000), _SLICE_MS
    found: list[LogLine] = []
    while len(found) < count and until_ms >= first_ms:
        since_ms = max(first_ms, until_ms - width)
        found = [*deque(_lines_between(cloud, query, since_ms, until_ms), count - len(found)), *found]
        until_ms, width = since_ms - 1, width * _SLICES_GROW
    return found


def _lines_between(cloud: Cloud, query: LogQuery, since_ms: int | None, until_ms: int | None) -> Iterator[LogLine]:
    merge = Merge(_HOLD_MS)
    for page in cloud.log_pages(query.stream_prefix, since_ms, until_ms):
        merge.add(page)
        yield from query.lines(merge.release())
    yield from query.lines(merge.release(everything=True))


def follow_lines(cloud: Cloud, query: LogQuery, has_ended: Callable[[], bool]) -> Iterator[LogLine]:
    """The lines that are there and those that come, until `has_ended` and no more come, or `query.until` is over.

    Raises:
        ClientError: the cloud refuses, or does not answer for ten minutes.
    """
    merge, polls, quiet, pause = Merge(_HOLD_MS), 0, 0, POLL_SECONDS
    seen_at = time.monotonic()
    while quiet < _QUIET_POLLS:
        fresh, began = 0, time.monotonic()
        try:
            # Asked first: what was written before the end is there to be read after it.
            over = has_ended() or (query.until is not None and datetime.now(UTC) > query.until.astimezone(UTC))
            since = _since(query, merge, deep=over or polls % _DEEP_EVERY == 0)
            for page in cloud.log_pages(query.stream_prefix, since, query.until_ms):
                fresh += merge.add(page)
                yield from query.lines(merge.release())
            seen_at = time.monotonic()
        except OutageError:
            if time.monotonic() - seen_at > OUTAGE_SECONDS:
                raise
            over = False
        yield from query.lines(merge.release(everything=fresh == 0))
        merge.forget((merge.newest_ms or 0) - _DEEP_MS)
        polls += 1
        quiet = quiet + 1 if over and fresh == 0 else 0
        # Often while there is something to read, seldom while there is nothing.
        pause = POLL_SECONDS if fresh or over else min(pause * 1.5, _POLL_SECONDS_MAX)
        if quiet < _QUIET_POLLS:
            # What a look itself has taken is not waited for again: the delay of a line is counted from look to look.
            time.sleep(max(pause - (time.monotonic() - began), _REST_SECONDS))


def _since(query: LogQuery, merge: Merge, *, deep: bool) -> int | None:
    if merge.newest_ms is None:
        return query.since_ms
    return max(merge.newest_ms - (_DEEP_MS if deep else _LOOK_BACK_MS), query.since_ms or 0)
