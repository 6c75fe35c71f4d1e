"""Calls to CloudWatch Logs, within the rate that it allows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from muster.client.aws.cloud import Cloud
from muster.client.aws.connection import CONFIG
from muster.client.aws.error_translation import translated
from muster.client.logs.log_lines import LogEvent, LogSource

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient

# FilterLogEvents: 5 calls per second in an account and region.
_CALLS_PER_SECOND = 5.0


class RateLimiter:
    """Spaces out the calls of all threads of this process, in the order of asking."""

    def __init__(self, per_second: float) -> None:
        self._gap = 1 / per_second
        self._free = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when this caller may call."""
        with self._lock:
            now = time.monotonic()
            slot = max(now, self._free)
            self._free = slot + self._gap
        time.sleep(slot - now)


class LogEvents:
    """The log events of jobs. All training jobs of an account share one log group."""

    def __init__(self, cloud: Cloud) -> None:
        self._connection = cloud.connection
        self._limiter = RateLimiter(_CALLS_PER_SECOND)
        self._regions: dict[str, CloudWatchLogsClient] = {}

    def _client(self, region: str | None) -> CloudWatchLogsClient:
        if region is None:
            return self._connection.logs
        if region not in self._regions:
            self._regions[region] = self._connection.session.client("logs", region_name=region, config=CONFIG)
        return self._regions[region]

    def pages(self, source: LogSource, since_ms: int | None, until_ms: int | None) -> Iterator[list[LogEvent]]:
        """The events of `source` in time order; at most 10,000 to a call."""
        asked: dict[str, Any] = {
            "logGroupName": source.group,
            "logStreamNamePrefix": source.stream_prefix,
            "filterPattern": source.pattern or None,
            "startTime": since_ms,
            "endTime": until_ms,
        }
        request = {name: value for name, value in asked.items() if value is not None}
        # SageMaker creates the log group with the first job of an account, a log agent with the first line.
        with translated("ResourceNotFoundException"):
            self._limiter.wait()
            for page in self._client(source.region).get_paginator("filter_log_events").paginate(**request):
                yield [
                    LogEvent(item["eventId"], item["timestamp"], item["logStreamName"], item["message"])
                    for item in page["events"]
                ]
                if "nextToken" in page:
                    self._limiter.wait()
