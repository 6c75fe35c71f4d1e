"""Task tokens: how a decision reaches the workflow that waits for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from muster.contract.document import canonical_json
from muster.contract.run.record import Decision
from muster.contract.run.workflow_history import WAIT_PIECE_SECONDS
from muster.control.aws.aws_errors import error_code
from muster.control.runtime import clock

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

# The task has timed out, was completed before, or its execution is over: the next arming of the attempt finds the
# decision in the record. All three are one event to us, and AWS tells them apart by neither code nor wording.
_GONE = {"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"}

# SendTaskFailure: error 256 and cause 32,768 characters.
_ERROR_MAX = 256
_CAUSE_MAX = 32_768


class Tokens:
    """Completes the tasks of waiting workflows."""

    def __init__(self, stepfunctions: SFNClient) -> None:
        self._stepfunctions = stepfunctions

    def complete(self, token: str, run: str, rank: int, decision: Decision) -> bool:
        """Hand `decision` to the workflow. False when nobody waits on that token any more."""
        text = canonical_json(workflow_state(run, rank, decision)).decode()
        return _sent(lambda: self._stepfunctions.send_task_success(taskToken=token, output=text))

    def release(self, token: str) -> bool:
        """Let a workflow go on that waits for nothing but a word. False when nobody waits on that token any more."""
        return _sent(lambda: self._stepfunctions.send_task_success(taskToken=token, output="{}"))

    def fail(self, token: str, error: str, cause: str) -> bool:
        """Tell the workflow that the function itself failed; the workflow tries the same attempt again."""
        error, cause = error[:_ERROR_MAX], cause[:_CAUSE_MAX]
        return _sent(lambda: self._stepfunctions.send_task_failure(taskToken=token, error=error, cause=cause))


def workflow_state(run: str, rank: int, decision: Decision) -> dict[str, str | int]:
    """The state with which a replica's workflow goes on, the whole of it: the output replaces the input."""
    return {
        "run": run,
        "rank": rank,
        "attempt": decision.attempt,
        "next": decision.next.value,
        "delay_seconds": min(remaining_delay(decision), WAIT_PIECE_SECONDS),
        "reason": decision.reason,
    }


def remaining_delay(decision: Decision) -> int:
    """Seconds from now until the decided rerun is due."""
    if decision.delay_seconds == 0:
        return 0
    return max(0, math.ceil(decision.delay_seconds - clock.seconds_since(decision.decided_at)))


def _sent(send: Callable[[], object]) -> bool:
    try:
        send()
    except ClientError as failure:
        if error_code(failure) in _GONE:
            return False
        raise
    return True
