"""pods/log: what the container of a pod has printed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from muster.local.kubernetes.objects.status_errors import Document, StatusError, bad_request
from muster.local.kubernetes.server.request_info import is_true

_POLL_SECONDS = 0.1
_CHUNK = 65_536


@dataclass(frozen=True)
class LogFile:
    """The log of one start of a container: a file that grows, each line `TIME TEXT` with an RFC 3339 time."""

    path: Path
    running: bool
    """Whether more may come."""


class PodLogs(Protocol):
    """Where nodes keep the logs of containers."""

    def log_of(self, namespace: str, pod: str, container: str, *, previous: bool) -> LogFile | None:
        """The log of a container, or of its start before; None where it has not started (so often)."""


class NoPodLogs:
    """A cluster whose nodes keep no logs."""

    def log_of(self, namespace: str, pod: str, container: str, *, previous: bool) -> LogFile | None:
        """None."""
        _ = namespace, pod, container, previous
        return None


@dataclass(frozen=True)
class LogOptions:
    """The parameters of a request for a log."""

    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], now: datetime) -> LogOptions:
        """The options of a query.

        Raises:
            StatusError: 422 where one is impossible.
        """
        seconds, since = _number(query, "sinceSeconds", 1), None
        if seconds is not None:
            since = now - timedelta(seconds=seconds)
        elif given := query.get("sinceTime"):
            try:
                since = datetime.fromisoformat(given)
            except ValueError as error:
                message = f'parsing time "{given}" as "2006-01-02T15:04:05Z07:00": cannot parse'
                raise bad_request(message) from error
        return cls(
            follow=is_true(query.get("follow")),
            timestamps=is_true(query.get("timestamps")),
            tail=_number(query, "tailLines", 0),
            since=since,
            limit=_number(query, "limitBytes", 1),
        )


def _number(query: Mapping[str, str], name: str, least: int) -> int | None:
    given = query.get(name)
    if given is None or given == "":
        return None
    try:
        number = int(given)
    except ValueError as error:
        message = f'strconv.ParseInt: parsing "{given}": invalid syntax'
        raise bad_request(message) from error
    if number < least:
        message = (
            f'PodLogOptions "" is invalid: {name}: Invalid value: {number}: must be greater than or equal to {least}'
        )
        raise StatusError(422, "Invalid", message)
    return number


def container_of(pod: Document, query: Mapping[str, str]) -> str:
    """The container that a request means.

    Raises:
        StatusError: 400 where there is none of that name, or several without one.
    """
    name = pod["metadata"]["name"]
    containers = [item["name"] for item in pod["spec"].get("containers") or []]
    first = [item["name"] for item in pod["spec"].get("initContainers") or []]
    asked = query.get("container", "")
    if not asked:
        if len(containers) == 1:
            return str(containers[0])
        listed = " ".join(containers)
        also = f" or one of the init containers: [{' '.join(first)}]" if first else ""
        message = f"a container name must be specified for pod {name}, choose one of: [{listed}]{also}"
        raise bad_request(message)
    if asked not in containers + first:
        message = f"container {asked} is not valid for pod {name}"
        raise bad_request(message)
    return asked


def not_started(pod: Document, container: str, *, previous: bool) -> StatusError:
    """400: the container has no log yet, or none of an earlier start."""
    name = pod["metadata"]["name"]
    if previous:
        return bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    statuses = pod.get("status", {}).get("containerStatuses") or []
    waiting = [item.get("state", {}).get("waiting") or {} for item in statuses if item.get("name") == container]
    reason = waiting[0].get("reason", "ContainerCreating") if waiting else "ContainerCreating"
    failing = reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName")
    why = "trying and failing to pull image" if failing else reason
    return bad_request(f'container "{container}" in pod "{name}" is waiting to start: {why}')


async def stream(
    logs: PodLogs, place: tuple[str, str, str], first: LogFile, options: LogOptions
) -> AsyncGenerator[bytes, None]:
    """The lines that a request asks for, and those that follow until the container has ended.

    Args:
        logs: where it is asked whether the container still runs.
        place: namespace, pod, container.
        first: the file.
        options: which of its lines.
    """
    left = options.limit
    with first.path.open("rb") as file:
        for chunk in _selected(file.read(), options):
            part = chunk if left is None else chunk[:left]
            left = None if left is None else left - len(part)
            if part:
                yield part
        rest, running = b"", options.follow and first.running
        while running and left != 0:
            found = logs.log_of(*place, previous=False)
            # Asked before the file is read to its end: what is written until then is read as well.
            running = found is not None and found.running and found.path == first.path
            rest += file.read()
            whole, newline, rest = rest.rpartition(b"\n")
            for line in (whole + newline).splitlines(keepends=True):
                part = _line(line, options) if left is None else _line(line, options)[:left]
                left = None if left is None else left - len(part)
                if part:
                    yield part
            if running and left != 0:
                await asyncio.sleep(_POLL_SECONDS)


def _selected(content: bytes, options: LogOptions) -> Iterator[bytes]:
    lines = content.splitlines(keepends=True)
    if options.since is not None:
        lines = [line for line in lines if _time(line) >= options.since]
    if options.tail is not None:
        lines = lines[len(lines) - min(options.tail, len(lines)) :]
    part = b""
    for line in lines:
        part += _line(line, options)
        if len(part) > _CHUNK:
            yield part
            part = b""
    yield part


def _line(line: bytes, options: LogOptions) -> bytes:
    return line if options.timestamps else line.partition(b" ")[2]


def _time(line: bytes) -> datetime:
    try:
        return datetime.fromisoformat(line.partition(b" ")[0].decode())
    except ValueError:
        return datetime.max.replace(tzinfo=UTC)
