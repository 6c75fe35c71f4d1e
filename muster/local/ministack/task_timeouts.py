"""Time-outs of tasks that are no literals: MiniStack knows neither expressions nor TimeoutSecondsPath."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from ministack.services import stepfunctions

_RUNTIME, _QUERY = "States.Runtime", "States.QueryEvaluationError"
_SECONDS_MAX = 99_999_999  # Step Functions: TimeoutSeconds


def install() -> None:
    """Let MiniStack's Step Functions resolve them. Before what wraps the same function to see its state."""
    stepfunctions._execute_task = _resolving(stepfunctions._execute_task)


def _resolving(execute: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(execute)
    def executed(state: Mapping[str, Any], given: object, execution: object, context: object) -> Any:
        path = state.get("TimeoutSecondsPath")
        if isinstance(state.get("TimeoutSeconds"), str):
            seconds = _evaluated(state, given, context)
            return execute({**state, "TimeoutSeconds": seconds}, given, execution, context)
        if path is None:
            return execute(state, given, execution, context)
        seconds = stepfunctions._resolve_path(path, given)
        if not _is_period(seconds):
            # As on AWS, where no Catch and no Retry takes it.
            message = f"The TimeoutSecondsPath {path} is no positive whole number of seconds: {seconds!r}"
            raise stepfunctions._ExecutionError(_RUNTIME, message)
        return execute({**state, "TimeoutSeconds": seconds}, given, execution, context)

    return executed


def _evaluated(state: Mapping[str, Any], given: object, context: object) -> int:
    """The expression of a JSONata state. As on AWS, an error of it ends the execution: the task has not begun."""
    seconds = stepfunctions._jsonata_state_field(state, "TimeoutSeconds", "number", given, context)
    if not _is_period(seconds):
        message = f"TimeoutSeconds is no positive whole number: {seconds!r}"
        raise stepfunctions._ExecutionError(_QUERY, message)
    return int(seconds)


def _is_period(seconds: object) -> bool:
    return isinstance(seconds, int) and not isinstance(seconds, bool) and 0 < seconds <= _SECONDS_MAX
