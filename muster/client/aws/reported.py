"""Executions as Step Functions reports them, reduced to what a client needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions.type_defs import DescribeExecutionOutputTypeDef, ExecutionListItemTypeDef
    from pydantic import JsonValue


class ExecutionStatus(StrEnum):
    """The statuses of a Step Functions execution."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    ABORTED = "ABORTED"
    PENDING_REDRIVE = "PENDING_REDRIVE"


@dataclass(frozen=True)
class Execution:
    """What DescribeExecution says of a run."""

    name: str
    status: ExecutionStatus
    started_at: datetime
    ended_at: datetime | None
    replicas: int
    error: str
    cause: str
    parent: str | None = None
    reruns: bool = False
    """Whether its rerun policy may start a continuation."""
    recipe: JsonValue = None
    """The `recipe` of its spec."""

    @classmethod
    def from_description(cls, answer: DescribeExecutionOutputTypeDef) -> Execution:
        """The execution in an answer of DescribeExecution."""
        spec = read_input(answer.get("input", ""))
        return cls(
            name=answer["name"],
            status=ExecutionStatus(answer["status"]),
            started_at=answer["startDate"],
            ended_at=answer.get("stopDate"),
            replicas=_replicas(spec),
            parent=_parent(spec),
            reruns=spec.get("rerun") is not None,
            recipe=spec.get("recipe"),
            error=answer.get("error") or "",
            cause=_message(answer.get("cause") or ""),
        )


@dataclass(frozen=True)
class ExecutionSummary:
    """One line of ListExecutions."""

    name: str
    status: ExecutionStatus
    started_at: datetime
    ended_at: datetime | None

    @classmethod
    def from_item(cls, item: ExecutionListItemTypeDef) -> ExecutionSummary:
        """The execution of an ExecutionListItem."""
        return cls(item["name"], ExecutionStatus(item["status"]), item["startDate"], item.get("stopDate"))


def read_input(document: str) -> dict[str, JsonValue]:
    """The input of an execution; empty where it is not a mapping (a spec that was refused)."""
    try:
        found: JsonValue = json.loads(document)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _replicas(spec: Mapping[str, JsonValue]) -> int:
    """How many replicas the input asks for; 0 when it cannot be read (a spec that was refused)."""
    replicas = spec.get("replicas")
    return replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else 0


def _parent(spec: Mapping[str, JsonValue]) -> str | None:
    """The run that this one continues."""
    parent = spec.get("resume_from")
    return parent if isinstance(parent, str) else None


def _message(cause: str) -> str:
    """What happened, out of a cause: the links for readers of the console follow a blank line and are left out.

    The cause of a failed function ends with JSON that holds the message.
    """
    said, _, _ = cause.partition("\n\n")
    words, brace, rest = said.partition("{")
    try:
        value = json.loads(brace + rest)
    except ValueError:
        return said
    return f"{words}{value.get('errorMessage', brace + rest)}"
