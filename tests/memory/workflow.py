"""Step Functions: executions and task tokens. No definition is interpreted; the test moves the workflow on."""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tests.memory.calls import Operation, Parameters, refuse
from tests.memory.clock import VirtualClock
from tests.memory.notifications import Notifications, epoch_milliseconds

_PAGE = 100  # ListExecutions: by default
_FORGOTTEN_AFTER = timedelta(days=90)  # of its end; the name is free again
_REDRIVABLE = timedelta(days=14)  # after its end
_BAD_IN_NAMES = re.compile(r'[\s<>{}\[\]?*"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]')
_EXECUTION_ARN = re.compile(r"arn:[^:]+:states:[^:]+:\d{12}:execution:[^:]+:[^:]+")


class Answer(NamedTuple):
    """What a task's token was completed with: an output, or an error and its cause."""

    token: str
    at: datetime
    output: Any = None
    error: str | None = None
    cause: str | None = None


@dataclass
class _Task:
    execution: _Execution | None
    closed: bool = False


@dataclass
class _Execution:
    arn: str
    machine: str
    name: str
    input: str
    started: datetime
    status: str = "RUNNING"
    stopped: datetime | None = None
    output: str | None = None
    error: str | None = None
    cause: str | None = None

    @property
    def sorted_by(self) -> datetime:
        return self.stopped or self.started


class Workflow:
    """One state machine's executions. The methods without underscore are the test's hand on them."""

    def __init__(self, clock: VirtualClock, notifications: Notifications, account: str, region: str) -> None:
        self._clock = clock
        self._notifications = notifications
        self._lock = threading.RLock()
        self._executions: dict[str, _Execution] = {}
        self._tasks: dict[str, _Task] = {}
        self._tokens = itertools.count(1)
        self.machine_arn = f"arn:aws:states:{region}:{account}:stateMachine:muster"
        """The state machine that there is."""
        self.answers: list[Answer] = []
        """What came through task tokens, in order."""
        self.list_lag_seconds = 0.0
        """How long ListExecutions does not know of an execution that was started."""
        self.unknown_seconds = 0.0
        """How long DescribeExecution does not know of an execution that was started."""
        self.describe_lag_seconds = 0.0
        """How long DescribeExecution shows an execution as running that has ended."""
        self.on_start: Callable[[str, str], None] | None = None
        """Called with the name and the input of every execution that starts: the test's interpreter."""
        self.on_end: Callable[[str], None] | None = None
        """Called with the name of every execution that ends."""
        self.on_answer: Callable[[Answer], None] | None = None
        """Called with what a task's token was completed with."""
        self.operations = {
            "StartExecution": Operation(self._start, {"stateMachineArn", "name", "input"}),
            "DescribeExecution": Operation(self._describe, {"executionArn"}),
            "StopExecution": Operation(self._stop, {"executionArn", "error", "cause"}),
            "ListExecutions": Operation(self._list, {"stateMachineArn", "statusFilter", "maxResults", "nextToken"}),
            "SendTaskSuccess": Operation(self._succeed_task),
            "SendTaskFailure": Operation(self._fail_task),
        }

    # --- the test's hand -----------------------------------------------------------------------

    def execution_arn(self, name: str) -> str:
        """The ARN of the execution of that name."""
        return f"{self.machine_arn.replace(':stateMachine:', ':execution:')}:{name}"

    def status(self, name: str) -> str:
        """The status of the execution of that name."""
        return self._executions[self.execution_arn(name)].status

    def token(self, name: str | None = None) -> str:
        """A task of the execution `name` begins to wait: its token."""
        with self._lock:
            execution = None if name is None else self._named(self.execution_arn(name))
            token = f"AQCsAAAAKgAAAAMAAAAAAAAAA{next(self._tokens):08}"
            self._tasks[token] = _Task(execution)
            return token

    def expire(self, token: str) -> None:
        """Let a task time out now."""
        self._tasks[token].closed = True

    def answer(self, token: str) -> Answer | None:
        """What a token was completed with; None while its task waits."""
        return next((answer for answer in self.answers if answer.token == token), None)

    def succeed(self, name: str, output: Any = None) -> None:
        """The execution reaches its end."""
        self._end(self._running(name), "SUCCEEDED", output=json.dumps(output))

    def fail(self, name: str, error: str, cause: str = "", status: str = "FAILED") -> None:
        """The execution fails, or, as TIMED_OUT, was too slow."""
        self._end(self._running(name), status, error=error, cause=cause)

    def redrive(self, name: str) -> bool:
        """RedriveExecution: what failed or was stopped within 14 days goes on. False: it cannot be redriven."""
        with self._lock:
            found = self._named(self.execution_arn(name))
            over = found.status in {"FAILED", "TIMED_OUT", "ABORTED"}
            if not over or found.stopped is None or self._clock.now() - found.stopped > _REDRIVABLE:
                return False
            found.status, found.stopped, found.error, found.cause = "RUNNING", None, None, None
            self._announce(found)
            return True

    # --- operations ----------------------------------------------------------------------------

    def _start(self, request: Parameters) -> dict[str, Any]:
        self._check_machine(request["stateMachineArn"])
        name, document = request.get("name"), request.get("input", "{}")
        if name is None:
            message = "StartExecution without a name"
            raise NotImplementedError(message)
        if _BAD_IN_NAMES.search(name):
            refuse("InvalidName", f"Invalid Name: '{name}'")
        try:
            json.loads(document)
        except ValueError:
            refuse("InvalidExecutionInput", "Invalid State Machine Execution Input")
        arn = self.execution_arn(name)
        with self._lock:
            found = self._known(arn)
            if found is not None and (found.status != "RUNNING" or found.input != document):
                refuse("ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
            if found is None:
                found = _Execution(arn, self.machine_arn, name, document, self._clock.now())
                self._executions[arn] = found
                self._announce(found)
                if self.on_start is not None:
                    self.on_start(name, document)
            return {"executionArn": arn, "startDate": found.started}

    def _describe(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            found = self._named(request["executionArn"])
            if self._clock.now() - found.started < timedelta(seconds=self.unknown_seconds):
                refuse("ExecutionDoesNotExist", f"Execution Does Not Exist: '{found.arn}'")
            lag = timedelta(seconds=self.describe_lag_seconds)
            if found.stopped is not None and self._clock.now() - found.stopped < lag:
                found = replace(found, status="RUNNING", stopped=None, output=None, error=None, cause=None)
            shown = {
                **_summary(found),
                "input": found.input,
                "inputDetails": {"included": True},
                "output": found.output,
                "outputDetails": None if found.output is None else {"included": True},
                "error": found.error,
                "cause": found.cause,
            }
            return {name: value for name, value in shown.items() if value is not None}

    def _stop(self, request: Parameters) -> dict[str, Any]:
        with self._lock:
            found = self._named(request["executionArn"])
            if found.status != "RUNNING":
                # AWS does not document what it answers here; the client takes either.
                refuse("ValidationException", "Execution is not running")
            self._end(found, "ABORTED", error=request.get("error"), cause=request.get("cause"))
            return {"stopDate": found.stopped}

    def _list(self, request: Parameters) -> dict[str, Any]:
        if "stateMachineArn" not in request:
            refuse("ValidationException", "Must specify state machine or map run")
        self._check_machine(request["stateMachineArn"])
        wanted = request.get("statusFilter")
        visible = self._clock.now() - timedelta(seconds=self.list_lag_seconds)
        with self._lock:
            rows = [
                found
                for arn in self._executions
                if (found := self._known(arn)) is not None
                and found.started <= visible
                and wanted in {None, found.status}
            ]
            rows.reverse()
            rows.sort(key=lambda found: found.sorted_by, reverse=True)
            token = request.get("nextToken", "0")
            if not token.isdecimal():
                refuse("InvalidToken", "Invalid Token: 'Invalid token'")
            start = int(token)
            stop = start + (request.get("maxResults") or _PAGE)
            answer: dict[str, Any] = {"executions": [_summary(found) for found in rows[start:stop]]}
            return {**answer, "nextToken": f"{stop}"} if stop < len(rows) else answer

    def _succeed_task(self, request: Parameters) -> dict[str, Any]:
        try:
            output = json.loads(request["output"])
        except ValueError:
            refuse("InvalidOutput", "Invalid Output: 'Invalid JSON'")
        return self._complete(request, lambda token, at: Answer(token, at, output=output))

    def _fail_task(self, request: Parameters) -> dict[str, Any]:
        error, cause = request.get("error"), request.get("cause")
        return self._complete(request, lambda token, at: Answer(token, at, error=error, cause=cause))

    def _complete(self, request: Parameters, answer: Callable[[str, datetime], Answer]) -> dict[str, Any]:
        token, now = request["taskToken"], self._clock.now()
        with self._lock:
            task = self._tasks.get(token)
            if task is None:
                refuse("InvalidToken", "Invalid Token: 'Invalid token'")
            over = task.execution is not None and task.execution.status != "RUNNING"
            if task.closed or over:
                refuse("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
            task.closed = True
            self.answers.append(answer(token, now))
            if self.on_answer is not None:
                self.on_answer(self.answers[-1])
        return {}

    # --- executions ----------------------------------------------------------------------------

    def _check_machine(self, arn: str) -> None:
        if arn != self.machine_arn:
            refuse("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")

    def _known(self, arn: str) -> _Execution | None:
        found = self._executions.get(arn)
        if found is None or found.stopped is None or self._clock.now() - found.stopped < _FORGOTTEN_AFTER:
            return found
        return None

    def _named(self, arn: str) -> _Execution:
        if not _EXECUTION_ARN.fullmatch(arn):
            refuse("InvalidArn", f"Invalid Arn: '{arn}'")
        found = self._known(arn)
        if found is None:
            refuse("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
        return found

    def _running(self, name: str) -> _Execution:
        found = self._named(self.execution_arn(name))
        if found.status != "RUNNING":
            message = f"{name} has ended as {found.status}: the test cannot move it on"
            raise AssertionError(message)
        return found

    def _end(
        self,
        execution: _Execution,
        status: str,
        *,
        output: str | None = None,
        error: str | None = None,
        cause: str | None = None,
    ) -> None:
        with self._lock:
            execution.status, execution.stopped = status, self._clock.now()
            execution.output, execution.error, execution.cause = output, error, cause
            self._announce(execution)
            if self.on_end is not None:
                self.on_end(execution.name)

    def _announce(self, execution: _Execution) -> None:
        stopped = execution.stopped
        detail = {
            "executionArn": execution.arn,
            "stateMachineArn": execution.machine,
            "name": execution.name,
            "status": execution.status,
            "startDate": epoch_milliseconds(execution.started),
            "stopDate": None if stopped is None else epoch_milliseconds(stopped),
            "input": execution.input,
            "inputDetails": {"included": True},
            "output": execution.output,
            "outputDetails": None if execution.output is None else {"included": True},
            "error": execution.error,
            "cause": execution.cause,
        }
        self._notifications.send("aws.states", "Step Functions Execution Status Change", execution.arn, detail)


def _summary(execution: _Execution) -> dict[str, Any]:
    shown = {
        "executionArn": execution.arn,
        "stateMachineArn": execution.machine,
        "name": execution.name,
        "status": execution.status,
        "startDate": execution.started,
    }
    return shown if execution.stopped is None else {**shown, "stopDate": execution.stopped}
