"""The events of Muster's own bus: what they are called, what they carry, and how a repeated one is known.

A consumer relies on this: within a version fields are added, never renamed, retyped or removed.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, JsonValue

from muster.contract.aws.failures import FailureClass
from muster.contract.document import Document, digest
from muster.contract.run.result import Result, Verdict

SOURCE = "muster"
EVENT_VERSION = 1
RUN_REQUESTED = "Run Requested"

# PutEvents: an entry has at most 262,144 bytes; a text of ours is cut long before.
TEXT_MAX = 1_024
PROBLEMS_MAX = 100
_ID_LENGTH = 32


class Event(Document):
    """What every event carries."""

    detail_type: ClassVar[str]
    identity: ClassVar[tuple[str, ...]] = ("run",)
    """The fields that tell two events of one type apart; a repeated event has the same values in them."""

    version: Annotated[int, Field(ge=EVENT_VERSION, le=EVENT_VERSION, description="of this schema")] = EVENT_VERSION
    at: str = Field(description="when it happened, ISO 8601 in UTC")

    @property
    def id(self) -> str:
        """The same for every copy of the event: what a consumer forgets duplicates by."""
        return digest([self.detail_type, *(getattr(self, name) for name in self.identity)])[:_ID_LENGTH]

    def detail(self) -> dict[str, Any]:
        """The event's `detail`."""
        return {"id": self.id, **self.model_dump(mode="json", exclude_none=True)}


class RunEvent(Event):
    """An event of a run."""

    run: str = Field(description="the run's name")


class RunStarted(RunEvent):
    """The spec was accepted and the plan is written; no job exists yet."""

    detail_type: ClassVar[str] = "Run Started"

    execution_arn: str = Field(description="the run's execution")
    replicas: int = Field(description="how many replicas train together")
    plan_digest: str = Field(description="SHA-256 of the plan; on every job of the run as the tag muster:plan")
    parent: str | None = Field(default=None, description="the run that ended, and from whose last round this goes on")


class ReplicaLaunched(RunEvent):
    """SageMaker has accepted the job of an attempt."""

    detail_type: ClassVar[str] = "Replica Launched"
    identity: ClassVar[tuple[str, ...]] = ("run", "rank", "attempt")

    rank: int = Field(description="which replica")
    attempt: int = Field(description="which of its attempts, from 1")
    job: str = Field(description="the training job's name")


class ReplicaRerun(RunEvent):
    """An attempt ended without success, and another one follows."""

    detail_type: ClassVar[str] = "Replica Rerun"
    identity: ClassVar[tuple[str, ...]] = ("run", "rank", "attempt")

    rank: int = Field(description="which replica")
    attempt: int = Field(description="the attempt that ended")
    failure_class: FailureClass = Field(description="why it ended (failures.md)")
    reason: str = Field(description="in SageMaker's own words")
    delay_seconds: int = Field(description="from the end to the next attempt")


class QuorumLost(RunEvent):
    """Too few replicas can still succeed: the run is being stopped."""

    detail_type: ClassVar[str] = "Quorum Lost"

    reason: str = Field(description="which replica was lost, and why")


class RunEnded(RunEvent):
    """The run is settled: its result is written, its jobs are stopped."""

    reason: str = Field(description="why it ended like this")
    replicas: int = Field(description="how many replicas trained together")
    reruns: int = Field(description="attempts beyond the first, all replicas together")
    result: str = Field(description="where the result lies, s3://…")


class RunSucceeded(RunEnded):
    """The run is settled: enough replicas have succeeded."""

    detail_type: ClassVar[str] = "Run Succeeded"


class RunFailed(RunEnded):
    """The run is settled: too few replicas have succeeded."""

    detail_type: ClassVar[str] = "Run Failed"


class RunStopped(RunEnded):
    """The run is settled: somebody stopped it."""

    detail_type: ClassVar[str] = "Run Stopped"


class RunRerun(RunEvent):
    """A failed run goes on as another one, from the last committed round: its rerun policy asked for that."""

    detail_type: ClassVar[str] = "Run Rerun"

    continued_by: str = Field(description="the name of the run that goes on")
    generation: int = Field(description="how many runs were before the continuation")
    max: int = Field(description="how many there may be at most, by the policy")


class RunRefused(Event):
    """Something asked for a run and did not get it; nothing was created."""

    detail_type: ClassVar[str] = "Run Refused"
    identity: ClassVar[tuple[str, ...]] = ("request",)

    request: str = Field(description="what asked: an execution's ARN, an object's s3://… or the id of an event")
    error: str = Field(description="the kind of error, as Muster.SpecError")
    problems: tuple[str, ...] = Field(description="everything that is wrong, one line each")


class RunRequested(Document):
    """The detail of an event that asks for a run; anybody who may put events on the bus can send it."""

    spec: JsonValue = Field(default=None, description="the spec itself, as in docs/spec.md")
    spec_uri: str | None = Field(
        default=None, description="or where it lies: s3://BUCKET/inbox/… of the stack's bucket"
    )


OUT: tuple[type[Event], ...] = (
    *(RunStarted, ReplicaLaunched, ReplicaRerun, QuorumLost),
    *(RunSucceeded, RunFailed, RunStopped, RunRerun, RunRefused),
)

_ENDS: dict[Verdict, type[RunEnded]] = {
    Verdict.SUCCEEDED: RunSucceeded,
    Verdict.FAILED: RunFailed,
    Verdict.STOPPED: RunStopped,
}


def run_ended(result: Result, result_uri: str) -> RunEnded:
    """The event of a settlement."""
    return _ENDS[result.verdict](
        at=result.settled_at,
        run=result.run,
        reason=result.reason[:TEXT_MAX],
        replicas=len(result.replicas),
        reruns=result.reruns,
        result=result_uri,
    )
