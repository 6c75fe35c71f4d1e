"""The log of a container as a node keeps it: each line with its time. It is what pods/log answers from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from muster.local.sagemaker.log_shipping import LogSink

_TAIL_LINES = 80  # kubelet: FallbackToLogsOnError takes the last 80 lines or 2,048 bytes
_TAIL_BYTES = 2048


class ContainerLog:
    """Appends `TIME LINE` to a file, and passes the lines on to CloudWatch Logs."""

    def __init__(self, file: Path, ship: LogSink) -> None:
        self.file = file
        self._ship = ship
        file.touch()

    def __call__(self, events: Sequence[tuple[int, str]]) -> None:
        """Take lines with the times (epoch milliseconds) at which they were read."""
        with self.file.open("a") as log:
            log.writelines(f"{_time(at)} {line}\n" for at, line in events)
        self._ship(events)

    def tail(self) -> str:
        """The end of the log, as a termination message has it."""
        lines = [line.partition(" ")[2] for line in self.file.read_text(errors="replace").splitlines()[-_TAIL_LINES:]]
        return "\n".join(lines)[-_TAIL_BYTES:]


def _time(milliseconds: int) -> str:
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{milliseconds % 1000:03d}000000Z"
