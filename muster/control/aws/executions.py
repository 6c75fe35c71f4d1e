"""The executions of the stack's state machine, one per run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from muster.contract.errors import RunNameTakenError
from muster.contract.names import execution_arn, run_name
from muster.control.aws.aws_errors import error_code, tolerated

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient
    from mypy_boto3_stepfunctions.literals import ExecutionStatusType
    from mypy_boto3_stepfunctions.type_defs import DescribeExecutionOutputTypeDef


@dataclass(frozen=True)
class Execution:
    """An execution as ListExecutions shows it."""

    name: str
    arn: str
    status: str
    started_at: datetime
    ended_at: datetime | None


def state_machine_of(execution_arn: str) -> str:
    """The ARN of an execution's state machine."""
    return execution_arn.rpartition(":")[0].replace(":execution:", ":stateMachine:", 1)


class Executions:
    """The executions of one state machine."""

    def __init__(self, stepfunctions: SFNClient, state_machine_arn: str) -> None:
        self._stepfunctions = stepfunctions
        self._machine = state_machine_arn

    def start(self, name: str, document: str) -> bool:
        """Start the run `name` with the input `document`. False where the same run was started before.

        Raises:
            RunNameTakenError: the name belongs to a run with another input.
        """
        try:
            self._stepfunctions.start_execution(stateMachineArn=self._machine, name=name, input=document)
        except ClientError as error:
            if error_code(error) != "ExecutionAlreadyExists":
                raise
            arn = self._arn(name)
            if self._stepfunctions.describe_execution(executionArn=arn).get("input") != document:
                raise RunNameTakenError(name, arn) from error
            return False
        return True

    def is_cancelled(self, arn: str) -> bool:
        """Whether a user has stopped the execution, as far as Step Functions remembers it."""
        found = self._described(arn)
        return found is not None and found["status"] == "ABORTED"

    def stop_started(self, name: str, document: str, cause: str) -> bool:
        """Stop the execution that `start(name, document)` has started. False where there is none, or it has ended.

        An execution of the same name with another input is left alone: someone else has started it.
        """
        found = self._described(self._arn(name))
        if found is None or found["status"] != "RUNNING" or found.get("input") != document:
            return False
        # An execution that has just ended is refused as invalid, not with a code of its own.
        with tolerated("ValidationException"):
            self._stepfunctions.stop_execution(executionArn=self._arn(name), error="Muster.Cancelled", cause=cause)
            return True
        return False

    def _described(self, arn: str) -> DescribeExecutionOutputTypeDef | None:
        with tolerated("ExecutionDoesNotExist"):
            return self._stepfunctions.describe_execution(executionArn=arn)
        return None

    def _arn(self, name: str) -> str:
        return execution_arn(self._machine, name)

    def live_runs(self) -> set[str]:
        """The names of the runs whose executions are running."""
        return {run_name(execution.name) for execution in self._listed("RUNNING")}

    def ended(self, statuses: Iterable[ExecutionStatusType], since: datetime) -> list[Execution]:
        """The executions that ended in one of `statuses` at or after `since` in the order of their ends."""
        found = [execution for status in statuses for execution in self._listed(status)]
        recent = ((execution.ended_at, execution) for execution in found)
        dated = [(at, execution) for at, execution in recent if at is not None and at >= since]
        return [execution for _, execution in sorted(dated, key=lambda pair: pair[0])]

    def _listed(self, status: ExecutionStatusType) -> Iterator[Execution]:
        # ListExecutions: at most 1,000 a page; Step Functions deletes an execution 90 days after its end.
        pages = self._stepfunctions.get_paginator("list_executions").paginate(
            stateMachineArn=self._machine, statusFilter=status
        )
        for page in pages:
            for item in page["executions"]:
                arn, started_at = item["executionArn"], item["startDate"]
                yield Execution(item["name"], arn, item["status"], started_at, item.get("stopDate"))
