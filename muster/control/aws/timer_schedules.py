"""Setting a run's timers: EventBridge Scheduler calls a function once at the given time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from muster.contract.document import canonical_json
from muster.contract.spec.run_limits import Timer
from muster.control.aws.aws_errors import tolerated
from muster.control.runtime import clock


class SchedulerClient(Protocol):
    """The part of EventBridge Scheduler that Muster uses."""

    def create_schedule(self, **request: object) -> object:
        """CreateSchedule."""


class Timers:
    """The timers of runs. They call the function `function_arn`, or another one, with the role `role_arn`."""

    def __init__(self, scheduler: SchedulerClient, function_arn: str, role_arn: str, prefix: str) -> None:
        self._scheduler = scheduler
        self._function_arn = function_arn
        self._role_arn = role_arn
        self._prefix = prefix

    def set(self, run: str, timers: Mapping[Timer, int]) -> None:
        """Schedule each timer to fire after this many seconds. A timer that is already set does not change."""
        for timer, seconds in timers.items():
            self.call(f"{run}-{timer}", seconds, self._function_arn, run=run, timer=timer)

    def call(self, name: str, seconds: int, function_arn: str, **request: str | int) -> None:
        """Call a function with this request after so many seconds. What is already scheduled does not change."""
        at = clock.utc_now() + timedelta(seconds=seconds)
        with tolerated("ConflictException"):
            self._scheduler.create_schedule(
                # At most 64 characters; unique in its group, which is the default one.
                Name=f"{self._prefix}-{name}",
                ScheduleExpression=f"at({at:%Y-%m-%dT%H:%M:%S})",
                FlexibleTimeWindow={"Mode": "OFF"},
                ActionAfterCompletion="DELETE",
                Target={
                    "Arn": function_arn,
                    "RoleArn": self._role_arn,
                    "Input": canonical_json(request).decode(),
                },
            )
