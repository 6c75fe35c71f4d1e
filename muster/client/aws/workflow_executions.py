"""Calls to Step Functions: the executions of the stack's state machine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypedDict, TypeVar

from botocore.exceptions import ClientError as AwsError

from muster.client.aws.connection import Connection
from muster.client.aws.error_translation import error_code, translated
from muster.client.aws.reported import Execution, ExecutionStatus, ExecutionSummary
from muster.client.client_errors import UnknownRunError
from muster.contract import names
from muster.contract.errors import RunNameTakenError

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions.literals import ExecutionStatusType
    from mypy_boto3_stepfunctions.type_defs import DescribeExecutionOutputTypeDef, StartExecutionOutputTypeDef

LISTED_MAX = 50
"""How many runs are listed where a caller names no number."""
_UNKNOWN = {"ExecutionDoesNotExist", "InvalidArn"}
# DescribeExecution is eventually consistent: it may not know of an execution that has just started.
_KNOWN_AFTER_SECONDS = 30.0
_PAUSE_SECONDS = 1.0
_PAGE = 100  # executions per ListExecutions call


# A call and its retries last seconds.
_JUST_STARTED = timedelta(seconds=30)

R = TypeVar("R")


class _Status(TypedDict, total=False):
    statusFilter: ExecutionStatusType


def _answered_at(answer: StartExecutionOutputTypeDef) -> datetime:
    """When AWS answered, by its clock; by that of this machine, which may be wrong, where the answer has no time."""
    try:
        return parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"]).replace(tzinfo=UTC)
    except (KeyError, ValueError):
        return datetime.now(UTC)


class WorkflowExecutions:
    """The executions of the stack's state machine, one for each run."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._started: dict[str, float] = {}
        """When this object has started an execution, by `time.monotonic`."""

    def start(self, execution: str, document: str) -> bool:
        """StartExecution. Idempotent: the same name with the same input, while it runs, is the same run.

        Returns whether it had been running, as the answer's times say.

        Raises:
            RunNameTakenError: the name belongs to another run.
        """
        stack = self._connection.stack
        with translated():
            try:
                answer = self._connection.stepfunctions.start_execution(
                    stateMachineArn=stack.state_machine_arn, name=execution, input=document
                )
            except AwsError as error:
                if error_code(error) != "ExecutionAlreadyExists":
                    raise
                raise RunNameTakenError(execution, stack.execution_arn(execution)) from error
        self._started[execution] = time.monotonic()
        return _answered_at(answer) - answer["startDate"] > _JUST_STARTED

    def describe(self, execution: str) -> Execution:
        """DescribeExecution.

        Raises:
            UnknownRunError: there is none of that name.
        """
        return Execution.from_description(self._description(execution))

    def input_of(self, execution: str) -> str:
        """The input that the execution was started with.

        Raises:
            UnknownRunError: there is none of that name.
        """
        return self._description(execution).get("input", "")

    def _description(self, execution: str) -> DescribeExecutionOutputTypeDef:
        arn = self._connection.stack.execution_arn(execution)
        with translated():
            return self._found(execution, lambda: self._connection.stepfunctions.describe_execution(executionArn=arn))

    def _found(self, execution: str, ask: Callable[[], R]) -> R:
        """What `ask` returns. It is asked again while AWS may not know of an execution that this object has started.

        Raises:
            UnknownRunError: there is none of that name.
        """
        while True:
            try:
                return ask()
            except AwsError as error:
                if error_code(error) not in _UNKNOWN:
                    raise
                if time.monotonic() - self._started.get(execution, -math.inf) > _KNOWN_AFTER_SECONDS:
                    raise UnknownRunError(execution, self._connection.stack.name) from error
            time.sleep(_PAUSE_SECONDS)

    def list(self, status: ExecutionStatus | None) -> Iterator[ExecutionSummary]:
        """The executions of the stack, the newest first; 100 to a call, which is made when it is needed."""
        condition: _Status = {} if status is None else {"statusFilter": status.value}
        machine = self._connection.stack.state_machine_arn
        with translated():
            pages = self._connection.stepfunctions.get_paginator("list_executions").paginate(
                stateMachineArn=machine, PaginationConfig={"PageSize": _PAGE}, **condition
            )
            for page in pages:
                yield from map(ExecutionSummary.from_item, page["executions"])

    def live_runs(self) -> set[str]:
        """The names of the runs whose executions have not ended."""
        return {names.run_name(execution.name) for execution in self.list(ExecutionStatus.RUNNING)}

    def stop(self, execution: str, cause: str) -> bool:
        """StopExecution. Returns whether this call stopped it: false when it had ended already.

        Raises:
            UnknownRunError: there is none of that name.
        """
        arn = self._connection.stack.execution_arn(execution)

        def ask() -> object:
            return self._connection.stepfunctions.stop_execution(
                executionArn=arn, error="Muster.Cancelled", cause=cause
            )

        with translated():
            try:
                self._found(execution, ask)
            except AwsError as error:
                # An execution that has ended is refused as invalid, not with a code of its own.
                if error_code(error) == "ValidationException" and self.describe(execution).ended_at:
                    return False
                raise
        return True
