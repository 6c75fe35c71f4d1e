"""Reading a run's lines from CloudWatch Logs, once or until the run ends.

One FilterLogEvents call searches the streams of all replicas, in time order. A line can arrive after newer ones of
other replicas, so a follower rereads the last seconds at every poll, and the last minutes every minute or so. It
recognises what it has seen by the events' ids.
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
# FilterLogEvents: 5 calls per second in an account and region, shared by all its users.
_POLL_SECONDS_MAX = 5.0
_REST_SECONDS = 0.2
_HOLD_MS = 500
_LOOK_BACK_MS = 5_000
_DEEP_MS = DEEP_SECONDS * 1000
_DEEP_EVERY = 60  # polls: such a poll reads minutes of lines again, which delays new ones
_QUIET_POLLS = 2  # after the end: the log agent's last batch arrives after the job's end
# For the last lines: the last minute is read first, then growing slices before it, for runs that write little.
_SLICE_MS = 60_000
_SLICES_GROW = 8


def read_lines(cloud: Cloud, query: LogQuery) -> Iterator[LogLine]:
    """The lines that exist now, in time order.

    Raises:
        ClientError: AWS cannot be reached or refuses.
    """
    yield from _lines_between(cloud, query, query.since_ms, query.until_ms)


def last_lines(cloud: Cloud, query: LogQuery, count: int, end: datetime) -> list[LogLine]:
    """The last `count` lines until `end`, or all if there are fewer; earlier ones are not read.

    Raises:
        ClientError: AWS cannot be reached or refuses.
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
    for page in cloud.logs.pages(query.stream_prefix, since_ms, until_ms):
        merge.add(page)
        yield from query.lines(merge.release())
    yield from query.lines(merge.release(everything=True))


def follow_lines(cloud: Cloud, query: LogQuery, has_ended: Callable[[], bool]) -> Iterator[LogLine]:
    """The lines that exist and new ones, until `has_ended` and none arrive any more, or until `query.until`.

    Raises:
        ClientError: AWS refuses, or does not answer for ten minutes.
    """
    merge, polls, quiet, pause = Merge(_HOLD_MS), 0, 0, POLL_SECONDS
    seen_at = time.monotonic()
    while quiet < _QUIET_POLLS:
        fresh, began = 0, time.monotonic()
        try:
            # Checked before reading: a line written before the end is then read after it.
            over = has_ended() or (query.until is not None and datetime.now(UTC) > query.until.astimezone(UTC))
            since = _since(query, merge, deep=over or polls % _DEEP_EVERY == 0)
            for page in cloud.logs.pages(query.stream_prefix, since, query.until_ms):
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
        # Poll often while lines arrive, seldom while none do.
        pause = POLL_SECONDS if fresh or over else min(pause * 1.5, _POLL_SECONDS_MAX)
        if quiet < _QUIET_POLLS:
            # The time that the poll itself took counts as waiting, so polls come at an even rate.
            time.sleep(max(pause - (time.monotonic() - began), _REST_SECONDS))


def _since(query: LogQuery, merge: Merge, *, deep: bool) -> int | None:
    if merge.newest_ms is None:
        return query.since_ms
    return max(merge.newest_ms - (_DEEP_MS if deep else _LOOK_BACK_MS), query.since_ms or 0)
