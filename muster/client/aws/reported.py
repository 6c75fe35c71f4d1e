"""Training jobs and executions as the cloud reports them, reduced to what a client needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from muster.contract.aws.failures import FailureClass, JobEnd, classify_end, explained
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import JobName
from muster.contract.run.attempt import Transition, granted_type

_ENDS = frozenset(status for status in JobStatus if status.is_terminal)


@dataclass(frozen=True)
class Job:
    """One line of ListTrainingJobs that belongs to the run."""

    name: JobName
    status: str
    secondary: str
    created_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it can never change again; a status that we do not know is no end."""
        return self.status in _ENDS

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any], prefix: str, run: str) -> Job | None:
        """The job of a TrainingJobSummary, or None when it is another run's: NameContains also finds those."""
        name = JobName.parse(summary["TrainingJobName"], prefix)
        if name is None or name.run != run:
            return None
        return cls(
            name,
            summary["TrainingJobStatus"],
            summary.get("SecondaryStatus", ""),
            summary["CreationTime"],
            summary.get("TrainingEndTime"),
        )


@dataclass(frozen=True)
class JobDetail:
    """What only DescribeTrainingJob says of a job."""

    reason: str
    failure_class: FailureClass | None
    instance_type: str | None
    history: tuple[Transition, ...]

    @classmethod
    def from_description(cls, answer: Mapping[str, Any]) -> JobDetail:
        """The detail in an answer of DescribeTrainingJob."""
        status, reason = answer["TrainingJobStatus"], answer.get("FailureReason", "")
        end = JobEnd(JobStatus(status), answer["SecondaryStatus"], reason) if status in _ENDS else None
        return cls(
            reason=explained(end) if end else reason,
            failure_class=classify_end(end) if end else None,
            instance_type=granted_type(answer.get("ResourceConfig", {})),
            history=tuple(
                Transition(at=step["StartTime"].isoformat(), secondary=step["Status"])
                for step in answer.get("SecondaryStatusTransitions", [])
            ),
        )


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
    restarts: bool = False
    """Whether its jobs may restart by themselves: on spot, or by a retry strategy of SageMaker's."""
    reruns: bool = False
    """Whether it has a policy by which another run may go on after it."""

    @classmethod
    def from_description(cls, answer: Mapping[str, Any]) -> Execution:
        """The execution in an answer of DescribeExecution."""
        asked = read_input(answer.get("input", ""))
        return cls(
            name=answer["name"],
            status=ExecutionStatus(answer["status"]),
            started_at=answer["startDate"],
            ended_at=answer.get("stopDate"),
            replicas=_replicas(asked),
            parent=_parent(asked),
            restarts=_restarts(asked),
            reruns=asked.get("rerun") is not None,
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
    def from_item(cls, item: Mapping[str, Any]) -> ExecutionSummary:
        """The execution of an ExecutionListItem."""
        return cls(item["name"], ExecutionStatus(item["status"]), item["startDate"], item.get("stopDate"))


def read_input(document: str) -> dict[str, Any]:
    """What an execution was started with; empty where that is no mapping (a spec that was refused)."""
    try:
        asked = json.loads(document)
    except ValueError:
        return {}
    return asked if isinstance(asked, dict) else {}


def _replicas(asked: Mapping[str, Any]) -> int:
    """How many replicas are asked for; 0 when it cannot be read (a spec that was refused)."""
    replicas = asked.get("replicas")
    return replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else 0


def _parent(asked: Mapping[str, Any]) -> str | None:
    """The run from which this one wants to go on."""
    parent = asked.get("resume_from")
    return parent if isinstance(parent, str) else None


def _restarts(asked: Mapping[str, Any]) -> bool:
    overrides = asked.get("overrides")
    each = list(overrides.values()) if isinstance(overrides, dict) else []
    spot = [asked.get("spot"), *(item.get("spot") for item in each if isinstance(item, dict))]
    return any(spot) or asked.get("retry_strategy") is not None


def _message(cause: str) -> str:
    """What a cause says has happened: where to look follows a blank line, and is for those who read it in a console.

    The cause of a failed function ends with JSON that has the message inside.
    """
    told, _, _ = cause.partition("\n\n")
    words, brace, rest = told.partition("{")
    try:
        value = json.loads(brace + rest)
    except ValueError:
        return told
    return f"{words}{value.get('errorMessage', brace + rest)}"
