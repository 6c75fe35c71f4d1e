"""Step Functions: executions that have ended stay so, and their task tokens with them.

MiniStack takes answers for executions that were stopped, continues the children of a stopped execution, lets a late
error overwrite its end, waits for a token whose function has failed, and gives every try of a task the same token. On
AWS a token ends with its task, and each try has a token of its own. MiniStack also knows no time-outs that are
expressions, calls integrations of every partition, and refuses a start that is repeated.
"""

from __future__ import annotations

import contextvars
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ministack.core import responses
from ministack.services import stepfunctions

from muster.contract.names import execution_arn
from muster.local.ministack.host import Account, Response, is_json, json_answer, refusal

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions.type_defs import StartExecutionInputTypeDef

_Handler = Callable[..., Response]

_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ABORTED, _QUERY, _UNCATCHABLE = "States.Aborted", "States.QueryEvaluationError", "States.Runtime"
_SECONDS_MAX = 99_999_999  # Step Functions: TimeoutSeconds
# Whose state runs in this thread, and on which token it waits.
_execution: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("muster_execution", default=None)
_context: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("muster_context", default=None)
_waiting: contextvars.ContextVar[str] = contextvars.ContextVar("muster_token", default="")


class StateMachines:
    """The task tokens that were given, and the execution of each."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._executions: dict[str, dict[str, Any]] = {}
        self._closed: set[str] = set()

    def install(self) -> None:
        """Let MiniStack's Step Functions ask here."""
        stepfunctions._start_execution = partial(_start, stepfunctions._start_execution)
        stepfunctions._execute_task = partial(self._execute, stepfunctions._execute_task)
        stepfunctions._invoke_with_callback = partial(self._invoke, stepfunctions._invoke_with_callback)
        stepfunctions._call_lambda = partial(_call, stepfunctions._call_lambda)
        stepfunctions._fail_execution = partial(_fail, stepfunctions._fail_execution)
        stepfunctions._stop_execution = partial(self._stop, stepfunctions._stop_execution)
        stepfunctions._send_task_success = partial(self._answer, stepfunctions._send_task_success)
        stepfunctions._send_task_failure = partial(self._answer, stepfunctions._send_task_failure)

    def _execute(
        self,
        execute: Callable[..., Any],
        state: dict[str, Any],
        given: object,
        execution: dict[str, Any],
        context: dict[str, Any],
    ) -> Any:
        if not _alive(execution):
            raise stepfunctions._ExecutionError(_ABORTED, "the execution was stopped")
        notes = _execution.set(execution), _context.set(context)
        try:
            self._check_partition(state, context)
            if isinstance(state.get("TimeoutSeconds"), str):
                state = {**state, "TimeoutSeconds": _seconds(state, given, context)}
            return execute(state, given, execution, context)
        finally:
            _execution.reset(notes[0])
            _context.reset(notes[1])

    def _check_partition(self, state: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        """Another partition in a state ends its execution; nothing catches it (aws/aws-cdk#4597)."""
        parts = str(state.get("Resource", "")).split(":")
        if len(parts) > 1 and parts[1] != self._account.partition:
            cause = (
                f"An error occurred while executing the state '{context.get('State', {}).get('Name', '')}'. The "
                "resource belongs to a different partition from the running execution. "
                f"Expected '{self._account.partition}', was '{parts[1]}'."
            )
            raise stepfunctions._ExecutionError(_UNCATCHABLE, cause)

    def _invoke(self, invoke: Callable[..., Any], resource: object, given: object, token: str, state: object) -> Any:
        execution = _execution.get()
        if execution is not None:
            self._executions[token] = execution
        note = _waiting.set(token)
        try:
            return invoke(resource, given, token, state)
        finally:
            _waiting.reset(note)
            self._executions.pop(token, None)
            self._closed.add(token)
            if (context := _context.get()) is not None:
                # For the next try, whose parameters are made anew.
                context["Task"] = {"Token": responses.new_uuid()}

    def _stop(self, stop: _Handler, request: Mapping[str, Any]) -> Response:
        """End the tasks of an execution that was stopped, and those of its children."""
        answer = stop(request)
        for token, execution in list(self._executions.items()):
            task = stepfunctions._task_tokens.get(token)
            if task is not None and not _alive(execution):
                _end(task, _ABORTED, "")
        return answer

    def _answer(self, answer: _Handler, request: Mapping[str, Any]) -> Response:
        token = str(request.get("taskToken"))
        if not _TOKEN.fullmatch(token):
            return refusal("InvalidToken", f"Invalid Token: '{token}'")
        execution, task = self._executions.get(token), stepfunctions._task_tokens.get(token)
        is_over = token in self._closed or (execution is not None and not _alive(execution))
        if is_over or (task is not None and task["event"].is_set()):
            return refusal("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
        if "output" in request and not is_json(str(request["output"])):
            return refusal("InvalidOutput", "Invalid Output: the output is not valid JSON")
        return answer(request)


def _end(task: dict[str, Any], error: str, cause: str) -> None:
    task["error"] = {"Error": error, "Cause": cause}
    task["event"].set()


def _alive(execution: Mapping[str, Any]) -> bool:
    """Whether an execution runs: a child ends with the execution that its Map Run is part of."""
    run = stepfunctions._map_runs.get(execution["mapRunArn"]) if execution.get("mapRunArn") else None
    parent = stepfunctions._executions.get(run["executionArn"]) if run else None
    return execution["status"] == "RUNNING" and (parent is None or _alive(parent))


def _call(call: Callable[..., Any], function: object, event: object) -> Any:
    """Fail the task whose function has failed: MiniStack drops the error and waits for the token."""
    try:
        return call(function, event)
    except stepfunctions._ExecutionError as error:
        task = stepfunctions._task_tokens.get(_waiting.get())
        if task is not None and not task["event"].is_set():
            _end(task, error.error, error.cause)
        raise


def _fail(fail: Callable[..., None], execution: dict[str, Any], error: str, cause: str) -> None:
    if execution["status"] == "RUNNING":
        fail(execution, error, cause)


def _seconds(state: Mapping[str, Any], given: object, context: object) -> int:
    """The time-out of a JSONata state. As on AWS, an error of it ends the execution: the task has not begun."""
    seconds = stepfunctions._jsonata_state_field(state, "TimeoutSeconds", "number", given, context)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= _SECONDS_MAX:
        cause = f"TimeoutSeconds is no positive whole number: {seconds!r}"
        raise stepfunctions._ExecutionError(_QUERY, cause)
    return seconds


def _start(start: _Handler, request: StartExecutionInputTypeDef) -> Response:
    """Answer StartExecution of a running execution's name and input with that execution.

    MiniStack refuses every name that was used before; on AWS the call is idempotent while the execution runs.
    """
    status, headers, body = start(request)
    if status != 400 or json.loads(body).get("__type") != "ExecutionAlreadyExists":
        return status, headers, body
    running = stepfunctions._executions.get(execution_arn(request["stateMachineArn"], request["name"]))
    if not running or running["status"] != "RUNNING" or running["input"] != request.get("input", "{}"):
        return status, headers, body
    return json_answer({"executionArn": running["executionArn"], "startDate": running["startDate"]})
