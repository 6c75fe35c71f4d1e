"""The output of a process, sent to CloudWatch Logs, and the metrics in it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import MetricDefinitionTypeDef

_MAX_EVENT_BYTES = 256 * 1024  # CloudWatch Logs quota: size of a log event
_MAX_BATCH = 10_000  # CloudWatch Logs quota: events in a PutLogEvents batch
_READ_BYTES = 1 << 20

LogSink = Callable[[Sequence[tuple[int, str]]], None]


class MetricScraper:
    """MetricDefinitions matched against every line: the last value of each metric is kept."""

    def __init__(self, definitions: Sequence[MetricDefinitionTypeDef], found: dict[str, tuple[float, float]]) -> None:
        self._patterns = [(definition["Name"], re.compile(definition["Regex"])) for definition in definitions]
        self._found = found

    def read(self, line: str, at: float) -> None:
        """Search one line, written at `at` (epoch seconds)."""
        for name, pattern in self._patterns:
            match = pattern.search(line)
            if match is None or not match.groups():
                continue
            try:
                self._found[name] = (float(match[1]), at)
            except ValueError:
                continue


class LogShipper:
    """Follows a log file. An incomplete line waits for its rest, unless the process has ended."""

    def __init__(self, path: Path, sink: LogSink, metrics: MetricScraper) -> None:
        self._path = path
        self._sink = sink
        self._metrics = metrics
        self._offset = 0
        self._partial = b""

    def pump(self, *, final: bool = False) -> None:
        """Ship what was written since the last call."""
        while chunk := self._read():
            self._ship(self._partial + chunk, final=False)
        if final and self._partial:
            self._ship(self._partial, final=True)

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                chunk = stream.read(_READ_BYTES)
        except FileNotFoundError:
            return b""
        self._offset += len(chunk)
        return chunk

    def _ship(self, data: bytes, *, final: bool) -> None:
        *lines, self._partial = data.split(b"\n")
        if final or len(self._partial) > _MAX_EVENT_BYTES:
            lines.append(self._partial)
            self._partial = b""
        now = time.time()
        texts = [piece.decode("utf-8", errors="replace").rstrip("\r") for line in lines for piece in _pieces(line)]
        for text in texts:
            self._metrics.read(text, now)
        # CloudWatch Logs refuses empty messages.
        events = [(int(now * 1000), text) for text in texts if text]
        for start in range(0, len(events), _MAX_BATCH):
            self._sink(events[start : start + _MAX_BATCH])


def _pieces(line: bytes) -> list[bytes]:
    """A line as log events: one, unless it is too long for one."""
    return [line[start : start + _MAX_EVENT_BYTES] for start in range(0, len(line), _MAX_EVENT_BYTES)]
