"""TimeoutSecondsPath of a task: MiniStack reads TimeoutSeconds alone, and would let the task wait for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from ministack.services import stepfunctions

_RUNTIME = "States.Runtime"
_SECONDS_MAX = 99_999_999  # Step Functions: TimeoutSeconds


def install() -> None:
    """Let MiniStack's Step Functions resolve the path. Before what wraps the same function to see its state."""
    stepfunctions._execute_task = _resolving(stepfunctions._execute_task)


def _resolving(execute: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(execute)
    def executed(state: Mapping[str, Any], given: object, execution: object, context: object) -> Any:
        path = state.get("TimeoutSecondsPath")
        if path is None:
            return execute(state, given, execution, context)
        seconds = stepfunctions._resolve_path(path, given)
        if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= _SECONDS_MAX:
            # As on AWS, where no Catch and no Retry takes it.
            message = f"The TimeoutSecondsPath {path} is no positive whole number of seconds: {seconds!r}"
            raise stepfunctions._ExecutionError(_RUNTIME, message)
        return execute({**state, "TimeoutSeconds": seconds}, given, execution, context)

    return executed
