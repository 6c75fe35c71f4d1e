"""What the pods of a job on a cluster have written, from CloudWatch Logs."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from muster.options.hyperpod.contract.pod_log_lines import STREAMS, parse_line

if TYPE_CHECKING:
    from mypy_boto3_logs import CloudWatchLogsClient
    from mypy_boto3_logs.type_defs import FilterLogEventsRequestTypeDef

_PAGES_READ = 5  # FilterLogEvents: of up to 10,000 events each
# Seconds before and after the end of an attempt: the agent of a node ships its lines a little later.
_BEFORE_END, _AFTER_END = 900, 120


def last_pod_lines(logs: CloudWatchLogsClient, group: str, job: str, ended_at: datetime, count: int) -> list[str]:
    """The last `count` lines of a job on a cluster, whose log group has one stream for each node.

    Raises:
        ClientError, BotoCoreError: the log cannot be read.
    """
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
        page = logs.filter_log_events(**request)
        lines = (parse_line(event["message"]) for event in page["events"])
        found = [*found, *(line.text for line in lines if line is not None and line.job == job)][-count:]
        if not page.get("nextToken"):
            break
        request["nextToken"] = page["nextToken"]
    return found
