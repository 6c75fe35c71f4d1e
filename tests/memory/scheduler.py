"""EventBridge Scheduler: one-time schedules, which fire when virtual time reaches them."""

import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tests.memory.calls import Operation, Parameters, refuse
from tests.memory.clock import VirtualClock

_AT = re.compile(r"at\((\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_SUPPORTED = {
    *("Name", "GroupName", "ClientToken", "Description", "ScheduleExpression", "FlexibleTimeWindow"),
    *("ActionAfterCompletion", "Target"),
}


class Firing(NamedTuple):
    """A schedule that called its target."""

    at: datetime
    name: str
    input: str


class Scheduler:
    """The schedules of an account."""

    def __init__(self, clock: VirtualClock, account: str, region: str) -> None:
        self._clock = clock
        self._base = f"arn:aws:scheduler:{region}:{account}:schedule/"
        self._lock = threading.Lock()
        self.schedules: dict[str, dict[str, Any]] = {}
        """The requests of the schedules that there are, by group and name."""
        self.fired: list[Firing] = []
        """In order."""
        self.on_firing: Callable[[Firing], None] | None = None
        """Called with every firing: the test's stand-in for the targets."""
        self.operations = {"CreateSchedule": Operation(self._create, _SUPPORTED)}

    def _create(self, request: Parameters) -> dict[str, Any]:
        due = _due(request)
        key = f"{request.get('GroupName', 'default')}/{request['Name']}"
        with self._lock:
            if key in self.schedules:
                refuse("ConflictException", f"Schedule {request['Name']} already exists.", 409)
            self.schedules[key] = dict(request)
        self._clock.at(due, lambda: self._fire(key))
        return {"ScheduleArn": self._base + key}

    def _fire(self, key: str) -> None:
        with self._lock:
            request = self.schedules[key]
            if request.get("ActionAfterCompletion") == "DELETE":
                del self.schedules[key]
            target = request["Target"]
            firing = Firing(self._clock.now(), request["Name"], target.get("Input", "{}"))
            self.fired.append(firing)
        if self.on_firing is not None:
            self.on_firing(firing)


def _due(request: Parameters) -> datetime:
    found = _AT.fullmatch(request["ScheduleExpression"])
    try:
        return datetime.fromisoformat(found.group(1) if found else "").replace(tzinfo=UTC)
    except ValueError:
        refuse("ValidationException", f"Invalid Schedule Expression {request['ScheduleExpression']}.")
