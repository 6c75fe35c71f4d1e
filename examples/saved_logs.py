"""Saves the logs of an embedded cloud before it stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster.local import LocalCloud


def save_logs(cloud: LocalCloud, folder: Path) -> None:
    """Write every CloudWatch log stream of `cloud` to a file under `folder`: functions, workflow, training jobs."""
    logs: Any = cloud.client("logs")
    for group in _pages(logs, "describe_log_groups", "logGroups"):
        name = group["logGroupName"]
        for stream in _pages(logs, "describe_log_streams", "logStreams", logGroupName=name):
            events = logs.get_log_events(logGroupName=name, logStreamName=stream["logStreamName"], startFromHead=True)[
                "events"
            ]
            file = folder / name.strip("/") / f"{stream['logStreamName'].replace('/', '_')}.log"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(f"{event['message'].rstrip()}\n" for event in events), encoding="utf-8")


def _pages(client: Any, operation: str, member: str, **arguments: str) -> list[dict[str, Any]]:
    return [item for page in client.get_paginator(operation).paginate(**arguments) for item in page[member]]
