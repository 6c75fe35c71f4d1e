"""Task tokens, with which a function sends a decision to the workflow that waits for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import Field

from muster.contract.document import canonical_json
from muster.contract.run.record import Decision, Next
from muster.contract.spec.retry_budget import WAIT_PIECE_SECONDS
from muster.control.aws.aws_errors import is_transient, tolerated
from muster.control.runtime import clock
from muster.control.runtime.function import RunRequest

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

# The task timed out, was completed before, or its execution has ended. Muster treats all three alike, and AWS does not
# distinguish them reliably: the next re-arm of the attempt finds the decision in the record.
_GONE = {"TaskTimedOut", "TaskDoesNotExist", "InvalidToken"}

# SendTaskFailure: error 256 and cause 32,768 characters.
_ERROR_MAX = 256
_CAUSE_MAX = 32_768


class TokenRequest(RunRequest):
    """What the workflow sends with a task token."""

    # Step Functions: a task token has at most 2,048 characters.
    token: Annotated[str, Field(min_length=1, max_length=2_048)]
    entered_at: Annotated[str, Field(min_length=1, max_length=64)]
    retry: Annotated[int, Field(ge=0, le=9_999)] = 0

    @property
    def armed_at(self) -> str:
        """The order of the tokens of one state, sortable as text. A retry has the entry time of its state."""
        return f"{self.entered_at}/{self.retry:04}"


class TokenNotSentError(Exception):
    """Step Functions cannot be reached. The workflow knows the function's error by this name, and tries again."""


class Tokens:
    """Completes the tasks of waiting workflows."""

    def __init__(self, stepfunctions: SFNClient) -> None:
        self._stepfunctions = stepfunctions

    def complete(self, token: str, run: str, rank: int, decision: Decision) -> bool:
        """Send `decision` to the workflow. False where no task waits for the token any more."""
        state = workflow_state(run, rank, decision)
        text, error = canonical_json(state).decode(), caught_error(state)
        if error is None:
            return _sent(lambda: self._stepfunctions.send_task_success(taskToken=token, output=text))
        return _sent(lambda: self._stepfunctions.send_task_failure(taskToken=token, error=error, cause=text))

    def release(self, token: str) -> bool:
        """Complete a task that needs no output. False where no task waits for the token any more."""
        return _sent(lambda: self._stepfunctions.send_task_success(taskToken=token, output="{}"))

    def fail(self, token: str, error: Exception) -> bool:
        """Report to the workflow that the function itself failed; the workflow tries again.

        Failing the task makes the workflow try again at once. A raised error would do so only on AWS.

        Raises:
            TokenNotSentError: Step Functions throttles the call or fails; the workflow gets this error instead.
        """
        name = "Muster.Unavailable" if is_transient(error) else f"Muster.{type(error).__name__}"
        try:
            return _sent(
                lambda: self._stepfunctions.send_task_failure(
                    taskToken=token, error=name[:_ERROR_MAX], cause=str(error)[:_CAUSE_MAX]
                )
            )
        except (ClientError, BotoCoreError) as failure:
            if not is_transient(failure):
                raise
            message = f"{name}: {error}"
            raise TokenNotSentError(message[:_CAUSE_MAX]) from failure


def caught_error(state: Mapping[str, str | int]) -> str | None:
    """The error as which the workflow catches this state, so that it continues with it; None where the replica ends."""
    match state["next"]:
        case Next.STOP:
            return "Muster.Stop"
        case Next.RERUN:
            return "Muster.RerunLater" if state["delay_seconds"] else "Muster.Rerun"
        case _:
            return None


def workflow_state(run: str, rank: int, decision: Decision) -> dict[str, str | int]:
    """The complete state with which a replica's workflow continues: the output replaces the input.

    A parked seat waits in the task of its next attempt, which holds its token: what was a delay is when it looks again.
    """
    delay = remaining_delay(decision)
    looks_again = {"rearm_seconds": delay} if decision.parked and delay else {}
    return {
        "run": run,
        "rank": rank,
        "attempt": decision.attempt,
        "next": decision.next.value,
        "delay_seconds": 0 if decision.parked else min(delay, WAIT_PIECE_SECONDS),
        "reason": decision.reason,
        **looks_again,
    }


def remaining_delay(decision: Decision) -> int:
    """Seconds from now until the decided rerun is due."""
    if decision.decided_at is None:
        return 0
    return max(0, math.ceil(decision.delay_seconds - clock.seconds_since(decision.decided_at)))


def _sent(send: Callable[[], object]) -> bool:
    with tolerated(*_GONE):
        send()
        return True
    return False
