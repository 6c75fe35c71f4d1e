"""Time-outs of tasks that are expressions, which MiniStack does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from ministack.services import stepfunctions

_QUERY = "States.QueryEvaluationError"
_SECONDS_MAX = 99_999_999  # Step Functions: TimeoutSeconds


def install() -> None:
    """Let MiniStack's Step Functions resolve them. Before what wraps the same function to see its state."""
    stepfunctions._execute_task = _resolving(stepfunctions._execute_task)


def _resolving(execute: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(execute)
    def executed(state: Mapping[str, Any], given: object, execution: object, context: object) -> Any:
        if isinstance(state.get("TimeoutSeconds"), str):
            state = {**state, "TimeoutSeconds": _evaluated(state, given, context)}
        return execute(state, given, execution, context)

    return executed


def _evaluated(state: Mapping[str, Any], given: object, context: object) -> int:
    """The expression of a JSONata state. As on AWS, an error of it ends the execution: the task has not begun."""
    seconds = stepfunctions._jsonata_state_field(state, "TimeoutSeconds", "number", given, context)
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= _SECONDS_MAX:
        message = f"TimeoutSeconds is no positive whole number: {seconds!r}"
        raise stepfunctions._ExecutionError(_QUERY, message)
    return seconds
