"""Training jobs and executions as the cloud reports them, reduced to what a client needs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from muster.contract import timestamps
from muster.contract.aws.failure_classes import JobEnd, classify_end, explained
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt, Transition, granted_type

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import DescribeTrainingJobResponseTypeDef, TrainingJobSummaryTypeDef
    from mypy_boto3_stepfunctions.type_defs import DescribeExecutionOutputTypeDef, ExecutionListItemTypeDef
    from pydantic import JsonValue

_ENDS = frozenset(status for status in JobStatus if status.is_terminal)


@dataclass(frozen=True)
class Job:
    """A training job of a run: an attempt of the replica with this rank.

    The attempt holds what ListTrainingJobs says of it, and what DescribeTrainingJob adds where it was asked.
    """

    rank: int
    attempt: Attempt

    @property
    def name(self) -> str:
        """The job's name."""
        return self.attempt.job

    @property
    def has_ended(self) -> bool:
        """Whether it can never change again; an unknown status does not count as an end."""
        return self.attempt.status in _ENDS

    @classmethod
    def from_summary(cls, summary: TrainingJobSummaryTypeDef, prefix: str, run: str) -> Job | None:
        """The job of a TrainingJobSummary, or None when it is another run's: NameContains finds those, too."""
        name = JobName.parse(summary["TrainingJobName"], prefix)
        if name is None or name.run != run:
            return None
        ended_at = summary.get("TrainingEndTime")
        attempt = Attempt(
            attempt=name.attempt,
            job=str(name),
            launched_at=timestamps.text(summary["CreationTime"]),
            ended_at=timestamps.text(ended_at) if ended_at else None,
            status=summary["TrainingJobStatus"],
            secondary=summary.get("SecondaryStatus", ""),
        )
        return cls(name.rank, attempt)

    def listed_as(self, latest: Job) -> Job:
        """This job with the status of a later listing."""
        listed = latest.attempt.model_dump(include={"launched_at", "ended_at", "status", "secondary"})
        return Job(self.rank, self.attempt.model_copy(update=listed))

    def described(self, answer: DescribeTrainingJobResponseTypeDef) -> Job:
        """This job with what only DescribeTrainingJob says of it."""
        status, reason = answer["TrainingJobStatus"], answer.get("FailureReason", "")
        end = JobEnd(JobStatus(status), answer["SecondaryStatus"], reason) if status in _ENDS else None
        update = {
            "reason": explained(end) if end else reason,
            "failure_class": classify_end(end) if end else None,
            "instance_type": granted_type(answer.get("ResourceConfig", {})),
            "history": tuple(
                Transition(at=timestamps.text(step["StartTime"]), secondary=step["Status"])
                for step in answer.get("SecondaryStatusTransitions", [])
            ),
        }
        return Job(self.rank, self.attempt.model_copy(update=update))


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
    """Whether its rerun policy may start a continuation."""

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
            restarts=_restarts(spec),
            reruns=spec.get("rerun") is not None,
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


def _restarts(spec: Mapping[str, JsonValue]) -> bool:
    overrides = spec.get("overrides")
    each = list(overrides.values()) if isinstance(overrides, dict) else []
    spot = [spec.get("spot"), *(item.get("spot") for item in each if isinstance(item, dict))]
    return any(spot) or spec.get("retry_strategy") is not None


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
