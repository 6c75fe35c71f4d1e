"""CloudWatch Logs: the streams of training jobs and of clusters' nodes, written by the test, and how they are read."""

import re
import threading
from typing import Any

from tests.memory.calls import Operation, Parameters, refuse
from tests.memory.clock import VirtualClock
from tests.memory.notifications import epoch_milliseconds

GROUP = "/aws/sagemaker/TrainingJobs"
CLUSTERS = "/aws/sagemaker/Clusters/"
_PAGE = 50  # DescribeLogStreams: limit


class Logs:
    """The log groups of training jobs and of clusters, which exist from the first line on."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._streams: dict[str, list[tuple[int, str]]] = {}
        self._clusters: dict[str, dict[str, list[tuple[int, str]]]] = {}
        self.operations = {
            "DescribeLogStreams": Operation(self._describe, {"logGroupName", "logStreamNamePrefix", "limit"}),
            "FilterLogEvents": Operation(
                self._filter, {"logGroupName", "logStreamNamePrefix", "startTime", "endTime", "filterPattern"}
            ),
            "GetLogEvents": Operation(self._get, {"logGroupName", "logStreamName", "limit", "startFromHead"}),
        }

    def write(self, job: str, *lines: str, host: str = "algo-1") -> None:
        """The container of `job` on `host` writes these lines now."""
        at = epoch_milliseconds(self._clock.now())
        with self._lock:
            self._streams.setdefault(f"{job}/{host}-1700000000", []).extend((at, line) for line in lines)

    def write_of_pod(self, cluster: str, node: str, *lines: str) -> None:
        """The log agent of a node ships these lines now; `cluster` is its name and id, as in the log group's name."""
        at = epoch_milliseconds(self._clock.now())
        with self._lock:
            group = self._clusters.setdefault(f"{CLUSTERS}{cluster}", {})
            stream = f"SagemakerHyperPodTrainingJob/workers/{node}"
            group.setdefault(stream, []).extend((at, line) for line in lines)

    def _describe(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            self._find_group(request)
            prefix = request.get("logStreamNamePrefix", "")
            names = sorted(name for name in self._streams if name.startswith(prefix))[: request.get("limit", _PAGE)]
            shown = [{"logStreamName": name, "lastEventTimestamp": self._streams[name][-1][0]} for name in names]
        return {"logStreams": shown}

    def _get(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            self._find_group(request)
            if request["logStreamName"] not in self._streams:
                refuse("ResourceNotFoundException", "The specified log stream does not exist.")
            events, limit = self._streams[request["logStreamName"]], request.get("limit", 10_000)
            wanted = events[:limit] if request.get("startFromHead") else events[-limit:]
        return {"events": [{"timestamp": at, "message": text, "ingestionTime": at} for at, text in wanted]}

    def _filter(self, request: Parameters) -> dict[str, Any]:
        """Everything in one page. The times of both ends are among those that are asked for."""
        with self._lock:
            streams = self._find_group(request)
            pattern = request.get("filterPattern", "")
            if pattern and re.fullmatch("%.+%", pattern) is None:
                refuse("InvalidParameterException", "Invalid filter pattern: here, only %regular expressions%")
            found = [
                {"eventId": f"{name}-{number}", "timestamp": at, "logStreamName": name, "message": text}
                for name, events in streams.items()
                if name.startswith(request.get("logStreamNamePrefix", ""))
                for number, (at, text) in enumerate(events)
                if request.get("startTime", at) <= at <= request.get("endTime", at)
                if re.search(pattern.strip("%"), text)
            ]
        return {"events": sorted(found, key=lambda event: event["timestamp"])}

    def _find_group(self, request: Parameters) -> dict[str, list[tuple[int, str]]]:
        name = request["logGroupName"]
        streams = self._streams if name == GROUP else self._clusters.get(name)
        if not streams:
            refuse("ResourceNotFoundException", "The specified log group does not exist.")
        return streams
