"""The lines that a run's replicas write: selected, and merged in order of time. Pure; log_reader reads them."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic import Field, field_serializer

from muster.client.client_errors import OptionError
from muster.contract import names, timestamps
from muster.contract.document import Document
from muster.contract.names import CONTAINER

DEEP_SECONDS = 300
"""While following, a line is missed that CloudWatch Logs delivers later than this behind newer ones."""


_PROCESS = re.compile(r"\[(\d{1,5})\.(\d{1,5})\] ")


class LogEvent(NamedTuple):
    """One event of CloudWatch Logs."""

    id: str
    at_ms: int
    stream: str
    message: str
    job: str | None = None
    """The job that has written it; empty: none. None: the stream is named after a training job."""


class LogSource(NamedTuple):
    """A log group, which of its streams are searched, and what their lines must contain."""

    group: str
    stream_prefix: str
    pattern: str = ""
    read: Callable[[LogEvent], LogEvent] | None = None
    """Finds the job and the text of an event; None: of training jobs."""
    region: str | None = None
    """Where the log group is; None: in the client's region."""


class LogLine(Document):
    """One line that a replica has written."""

    at: datetime = Field(description="ISO 8601 in UTC")
    rank: int
    process: int | None = Field(
        default=None, description="the process's rank in its replica; null where the replica has only one"
    )
    attempt: int
    job: str
    stream: str = Field(default="", description="the log stream in CloudWatch Logs")
    message: str

    @field_serializer("at", when_used="json")
    def _at(self, at: datetime) -> str:
        return timestamps.text(at)


@dataclass(frozen=True)
class LogQuery:
    """Which lines of a run are asked for; a filter that is left out lets all pass."""

    prefix: str
    """The prefix of the names of the stack's jobs."""
    run: str
    ranks: Collection[int] | None = None
    attempts: Collection[int] | None = None
    since: datetime | None = None
    until: datetime | None = None
    regex: re.Pattern[str] | None = None

    @property
    def stream_prefix(self) -> str:
        """The prefix of the names of all streams with such lines; streams of other runs may have it, too."""
        head = names.run_job_prefix(self.prefix, self.run)
        if self.ranks is None or len(self.ranks) != 1:
            return head
        head = f"{head}{next(iter(self.ranks))}-a"
        return head if self.attempts is None or len(self.attempts) != 1 else f"{head}{next(iter(self.attempts))}/"

    @property
    def source(self) -> LogSource:
        """Where the lines of training jobs are."""
        return LogSource(names.TRAINING_LOG_GROUP, self.stream_prefix)

    @property
    def since_ms(self) -> int | None:
        """The start, in milliseconds since 1970."""
        return None if self.since is None else _milliseconds(self.since)

    @property
    def until_ms(self) -> int | None:
        """The end, inclusive, in milliseconds since 1970."""
        return None if self.until is None else _milliseconds(self.until)

    @property
    def is_empty(self) -> bool:
        """Whether it ends before it starts, which the service refuses."""
        return self.since_ms is not None and self.until_ms is not None and self.since_ms > self.until_ms

    def _asks_for(self, job: names.JobName) -> bool:
        ranks, attempts = self.ranks, self.attempts
        return (ranks is None or job.rank in ranks) and (attempts is None or job.attempt in attempts)

    def lines(self, events: Iterable[LogEvent]) -> Iterator[LogLine]:
        """The lines among `events` that are asked for."""
        for event in events:
            name, text = _job_and_text(event)
            job = names.JobName.parse(name, self.prefix)
            if job is None or job.run != self.run or not self._asks_for(job):
                continue
            process, message = _process_of(text, job.rank)
            if self.regex is None or self.regex.search(message):
                at = datetime.fromtimestamp(event.at_ms / 1000, UTC)
                yield LogLine(
                    at=at,
                    rank=job.rank,
                    process=process,
                    attempt=job.attempt,
                    job=str(job),
                    stream=event.stream,
                    message=message,
                )


def _job_and_text(event: LogEvent) -> tuple[str, str]:
    """The job that has written a line, and the line."""
    if event.job is not None:
        return event.job, event.message
    # SageMaker names a stream after the job, the container and a number: {job}/algo-1-1700000000.
    job, _, container = event.stream.partition("/")
    return job if container.startswith(CONTAINER) else "", event.message.rstrip("\n")


def _process_of(message: str, rank: int) -> tuple[int | None, str]:
    """The process that the replica's launcher names in front of a line (`[2.5] ` in replica 2), and the rest."""
    head = _PROCESS.match(message)
    if head is None or int(head[1]) != rank:
        return None, message
    return int(head[2]), message[head.end() :]


class Merge:
    """Puts events in time order, each once, however often it is added.

    The newest events are held for `hold_ms`, because an older one of another replica may still arrive. An event that
    arrives later than that is released at once, out of order.
    """

    def __init__(self, hold_ms: int) -> None:
        self._hold_ms = hold_ms
        self._known: dict[str, int] = {}
        self._held: list[LogEvent] = []
        self.newest_ms: int | None = None

    def add(self, events: Iterable[LogEvent]) -> int:
        """Add `events`; returns how many of them are new."""
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
        """The events that need not be held any longer, in time order."""
        if not self._held:
            return []
        self._held.sort(key=lambda event: event.at_ms)
        limit = (self.newest_ms or 0) - self._hold_ms
        count = len(self._held) if everything else sum(event.at_ms <= limit for event in self._held)
        ready, self._held = self._held[:count], self._held[count:]
        return ready

    def forget(self, before_ms: int) -> None:
        """Forget events that will not be read again."""
        self._known = {id_: at_ms for id_, at_ms in self._known.items() if at_ms >= before_ms}


def read_regex(text: str, option: str) -> re.Pattern[str]:
    """`text` as a regular expression.

    Raises:
        OptionError: it is not one.
    """
    try:
        return re.compile(text)
    except (re.error, OverflowError) as error:
        raise OptionError(text, f"not a valid regular expression: {error}", option) from None
    except RecursionError:
        begin = f"{text[:40]}…"
        raise OptionError(begin, "not a valid regular expression: its groups are nested too deeply", option) from None


def _milliseconds(at: datetime) -> int:
    """Milliseconds since 1970. A time without a zone is local, as everywhere in Python."""
    return int(at.timestamp() * 1000)
