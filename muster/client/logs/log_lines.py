"""The lines that a run's replicas write: which are asked for, in one order. Pure; reading is elsewhere."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from muster.contract import names

DEEP_SECONDS = 300
"""A line that CloudWatch Logs delivers later than this behind newer ones is no longer looked for while following."""


class LogEvent(NamedTuple):
    """One event of CloudWatch Logs."""

    id: str
    at_ms: int
    stream: str
    message: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, and who wrote it when."""

    at: datetime
    rank: int
    attempt: int
    job: str
    message: str


@dataclass(frozen=True)
class LogQuery:
    """Which lines of a run are asked for; everything that is left out asks for all."""

    prefix: str
    """Of the stack's jobs."""
    run: str
    ranks: Collection[int] | None = None
    since: datetime | None = None
    until: datetime | None = None
    regex: re.Pattern[str] | None = None

    @property
    def stream_prefix(self) -> str:
        """What the names of all streams begin with in which such a line can be; those of other runs may, too."""
        head = names.run_job_prefix(self.prefix, self.run)
        return f"{head}{next(iter(self.ranks))}-a" if self.ranks is not None and len(self.ranks) == 1 else head

    @property
    def since_ms(self) -> int | None:
        """The beginning, in milliseconds since 1970."""
        return None if self.since is None else _milliseconds(self.since)

    @property
    def until_ms(self) -> int | None:
        """The end, in milliseconds since 1970; the service counts it in."""
        return None if self.until is None else _milliseconds(self.until)

    @property
    def is_empty(self) -> bool:
        """Whether it ends before it begins, which the service refuses."""
        return self.since_ms is not None and self.until_ms is not None and self.since_ms > self.until_ms

    def lines(self, events: Iterable[LogEvent]) -> Iterator[LogLine]:
        """The lines among `events` that are asked for."""
        for event in events:
            # SageMaker names a stream after the job, the container and a number: {job}/algo-1-1700000000.
            job = names.JobName.parse(event.stream.partition("/")[0], self.prefix)
            if job is None or job.run != self.run or (self.ranks is not None and job.rank not in self.ranks):
                continue
            message = event.message.rstrip("\n")
            if self.regex is None or self.regex.search(message):
                at = datetime.fromtimestamp(event.at_ms / 1000, UTC)
                yield LogLine(at, job.rank, job.attempt, str(job), message)


class Merge:
    """Puts events in time order, each once, however often it is added.

    The newest ones are held back for `hold_ms`, because another replica's older one may still be on its way. One that
    comes later than that is given out when it comes: late is better than lost.
    """

    def __init__(self, hold_ms: int) -> None:
        self._hold_ms = hold_ms
        self._known: dict[str, int] = {}
        self._held: list[LogEvent] = []
        self.newest_ms: int | None = None

    def add(self, events: Iterable[LogEvent]) -> int:
        """Take `events` in; how many of them are new."""
        fresh = []
        for event in events:
            if event.id not in self._known:
                self._known[event.id] = event.at_ms
                fresh.append(event)
        self._held += fresh
        if fresh:
            self.newest_ms = max(self.newest_ms or 0, *(event.at_ms for event in fresh))
        return len(fresh)

    def release(self, *, everything: bool = False) -> list[LogEvent]:
        """What need not be held any longer, in time order."""
        if not self._held:
            return []
        self._held.sort(key=lambda event: event.at_ms)
        limit = (self.newest_ms or 0) - self._hold_ms
        count = len(self._held) if everything else sum(event.at_ms <= limit for event in self._held)
        ready, self._held = self._held[:count], self._held[count:]
        return ready

    def forget(self, before_ms: int) -> None:
        """Drop the memory of events that will not be asked for again."""
        self._known = {id_: at_ms for id_, at_ms in self._known.items() if at_ms >= before_ms}


def _milliseconds(moment: datetime) -> int:
    """A moment without a zone is meant in local time, as everywhere in Python."""
    return int(moment.timestamp() * 1000)
