"""What the containers of a training job have written, from CloudWatch Logs."""

from __future__ import annotations

from muster.contract.names import CONTAINER, TRAINING_LOG_GROUP
from muster.control.aws.clients import Clients

_STREAMS_LISTED = 50  # DescribeLogStreams: the most in one answer
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
