"""How much time a job has left: MaxRuntimeInSeconds and MaxWaitTimeInSeconds of its StoppingCondition."""

from __future__ import annotations

import time
from collections.abc import Mapping


class TimeLimits:
    """Runtime counts while a process runs, over all processes of the job; waiting counts from its creation."""

    def __init__(self, stopping: Mapping[str, int], created: float) -> None:
        """`created` in epoch seconds."""
        self._max_runtime = stopping.get("MaxRuntimeInSeconds")
        self._max_wait = stopping.get("MaxWaitTimeInSeconds")
        self._created = created
        self._ran = 0.0

    def ran(self, seconds: float) -> None:
        """Count what a process ran."""
        self._ran += seconds

    def runtime_left(self, running_seconds: float) -> float | None:
        """Seconds left to a process that has run `running_seconds`; None without a limit."""
        return None if self._max_runtime is None else self._max_runtime - self._ran - running_seconds

    def wait_left(self) -> float | None:
        """Seconds until the job must have ended, waiting included; None without a limit."""
        return None if self._max_wait is None else self._created + self._max_wait - time.time()
