"""What the containers of a training job, or the pods of a job on a cluster, have written, from CloudWatch Logs."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from muster.contract.names import CONTAINER, TRAINING_LOG_GROUP
from muster.control.aws.clients import Clients

if TYPE_CHECKING:
    from mypy_boto3_logs.type_defs import FilterLogEventsRequestTypeDef

_STREAMS_LISTED = 50  # DescribeLogStreams: the most in one answer
_PAGES_READ = 5  # FilterLogEvents: of up to 10,000 events each
# Seconds before and after the end of an attempt: the agent of a node ships its lines a little later.
_BEFORE_END, _AFTER_END = 900, 120
_STREAMS_READ = 4  # of a job of many instances: those that have written last


class JobLogs:
    """The log streams of training jobs: `{job}/algo-1-1700000000`, one for each container."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def last_lines(self, job: str, count: int) -> list[str]:
        """The last `count` log events of a job, oldest first; of many instances those of the ones that wrote last.

        Raises:
            ClientError, BotoCoreError: the log cannot be read.
        """
        logs = self._clients.logs
        listed = logs.describe_log_streams(
            logGroupName=TRAINING_LOG_GROUP, logStreamNamePrefix=f"{job}/{CONTAINER}", limit=_STREAMS_LISTED
        )["logStreams"]
        newest = sorted(listed, key=lambda stream: stream.get("lastEventTimestamp", 0))[-_STREAMS_READ:]
        found: list[tuple[int, str]] = []
        for stream in newest:
            page = logs.get_log_events(
                logGroupName=TRAINING_LOG_GROUP,
                logStreamName=stream["logStreamName"],
                limit=count,
                startFromHead=False,
            )
            found += [(event["timestamp"], event["message"]) for event in page["events"]]
        found.sort(key=lambda event: event[0])
        return [message for _, message in found[-count:]]

    def last_pod_lines(self, group: str, job: str, ended_at: datetime, count: int) -> list[str]:
        """The last `count` lines of a job on a cluster, whose log group has one stream for each node.

        Raises:
            ClientError, BotoCoreError: the log cannot be read.
        """
        from muster.options.hyperpod.contract.pod_log_lines import STREAMS, parse_line  # noqa: PLC0415 - not without clusters

        end = int(ended_at.timestamp())
        found: list[str] = []
        request: FilterLogEventsRequestTypeDef = {
            "logGroupName": group,
            "logStreamNamePrefix": STREAMS,
            "startTime": 1000 * (end - _BEFORE_END),
            "endTime": 1000 * (end + _AFTER_END),
            "filterPattern": f"%{re.escape(job)}/%",
        }
        for _ in range(_PAGES_READ):
            page = self._clients.logs.filter_log_events(**request)
            lines = (parse_line(event["message"]) for event in page["events"])
            found = [*found, *(line.text for line in lines if line is not None and line.job == job)][-count:]
            if not page.get("nextToken"):
                break
            request["nextToken"] = page["nextToken"]
        return found
