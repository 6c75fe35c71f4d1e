"""Executions that have ended stay so, and their task tokens with them.

MiniStack takes answers for executions that were stopped, continues the children of a stopped execution, lets a late
error overwrite its end, waits for a token whose function has failed, and gives every try of a task the same token. On
AWS a token ends with its task, and each try has a token of its own.
"""

from __future__ import annotations

import contextvars
import json
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from ministack.core import responses
from ministack.services import stepfunctions

_Response = tuple[int, dict[str, str], bytes]
_Handler = Callable[[Mapping[str, Any]], _Response]

_TOKEN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Whose state runs in this thread, and on which token it waits.
_execution: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("muster_execution", default=None)
_context: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar("muster_context", default=None)
_waiting: contextvars.ContextVar[str] = contextvars.ContextVar("muster_token", default="")


class TaskTokens:
    """The tokens that were given, and the execution of each."""

    def __init__(self) -> None:
        self._executions: dict[str, dict[str, Any]] = {}
        self._closed: set[str] = set()

    def install(self) -> None:
        """Let MiniStack's Step Functions ask here."""
        stepfunctions._execute_task = self._noting_execution(stepfunctions._execute_task)
        stepfunctions._invoke_with_callback = self._noting_token(stepfunctions._invoke_with_callback)
        stepfunctions._call_lambda = _failing_at_once(stepfunctions._call_lambda)
        stepfunctions._fail_execution = _once(stepfunctions._fail_execution)
        stepfunctions._stop_execution = self._waking(stepfunctions._stop_execution)
        stepfunctions._send_task_success = self._checked(stepfunctions._send_task_success)
        stepfunctions._send_task_failure = self._checked(stepfunctions._send_task_failure)

    def _noting_execution(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(execute)
        def executed(state: object, given: object, execution: dict[str, Any], context: dict[str, Any]) -> Any:
            if not _alive(execution):
                raise _aborted()
            notes = _execution.set(execution), _context.set(context)
            try:
                return execute(state, given, execution, context)
            finally:
                _execution.reset(notes[0])
                _context.reset(notes[1])

        return executed

    def _noting_token(self, invoke: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(invoke)
        def invoked(resource: object, given: object, token: str, state: object) -> Any:
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

        return invoked

    def _waking(self, stop: _Handler) -> _Handler:
        """End the tasks of an execution that was stopped, and those of its children."""

        @wraps(stop)
        def stopped(request: Mapping[str, Any]) -> _Response:
            answer = stop(request)
            for token, execution in list(self._executions.items()):
                task = stepfunctions._task_tokens.get(token)
                if task is not None and not _alive(execution):
                    task["error"] = {"Error": "States.Aborted", "Cause": ""}
                    task["event"].set()
            return answer

        return stopped

    def _checked(self, answer: _Handler) -> _Handler:
        @wraps(answer)
        def answered(request: Mapping[str, Any]) -> _Response:
            token = str(request.get("taskToken"))
            if not _TOKEN.fullmatch(token):
                return _refused("InvalidToken", f"Invalid Token: '{token}'")
            execution = self._executions.get(token)
            if token in self._closed or (execution is not None and not _alive(execution)):
                return _refused("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
            task = stepfunctions._task_tokens.get(token)
            if task is not None and task["event"].is_set():
                return _refused("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
            if "output" in request and not _is_json(request["output"]):
                return _refused("InvalidOutput", "Invalid Output: the output is not valid JSON")
            return answer(request)

        return answered


def _alive(execution: Mapping[str, Any]) -> bool:
    """Whether an execution runs: a child ends with the execution that its Map Run is part of."""
    run = stepfunctions._map_runs.get(execution["mapRunArn"]) if execution.get("mapRunArn") else None
    parent = stepfunctions._executions.get(run["executionArn"]) if run else None
    return execution["status"] == "RUNNING" and (parent is None or _alive(parent))


def _failing_at_once(call: Callable[[object, object], Any]) -> Callable[[object, object], Any]:
    """Fail the task whose function has failed: MiniStack drops the error and waits for the token."""

    @wraps(call)
    def called(function: object, event: object) -> Any:
        try:
            return call(function, event)
        except stepfunctions._ExecutionError as error:
            task = stepfunctions._task_tokens.get(_waiting.get())
            if task is not None and not task["event"].is_set():
                task["error"] = {"Error": error.error, "Cause": error.cause}
                task["event"].set()
            raise

    return called


def _once(fail: Callable[[dict[str, Any], str, str], None]) -> Callable[[dict[str, Any], str, str], None]:
    @wraps(fail)
    def failed(execution: dict[str, Any], error: str, cause: str) -> None:
        if execution["status"] == "RUNNING":
            fail(execution, error, cause)

    return failed


def _aborted() -> Exception:
    error: Exception = stepfunctions._ExecutionError("States.Aborted", "the execution was stopped")
    return error


def _refused(code: str, message: str) -> _Response:
    answer: _Response = responses.error_response_json(code, message, 400)
    return answer


def _is_json(text: object) -> bool:
    try:
        json.loads(str(text))
    except ValueError:
        return False
    return True
