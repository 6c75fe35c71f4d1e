"""The events on Muster's own bus: their names, their fields, and the key for deduplication.

Consumers rely on this: within a version, fields may be added, but never renamed, retyped or removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, JsonValue

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.document import Document, digest
from muster.contract.run.ended_run import Verdict
from muster.contract.spec.elastic import ASKED_BY
from muster.contract.spec.recipe_reference import RunRecipe
from muster.contract.timestamps import Timestamp

if TYPE_CHECKING:
    from muster.contract.run.result import Result

SOURCE = "muster"
EVENT_VERSION = 1
RUN_REQUESTED = "Run Requested"
SCALE_REQUESTED = "Scale Requested"

# PutEvents: an entry has at most 262,144 bytes; Muster's texts are cut far below that.
TEXT_MAX = 1_024
_ID_LENGTH = 32


class Event(Document):
    """The fields of every event."""

    detail_type: ClassVar[str]
    identity: ClassVar[tuple[str, ...]] = ("run",)
    """The fields that identify an event among those of its type; a repeated event has the same values in them."""

    version: Annotated[int, Field(ge=EVENT_VERSION, le=EVENT_VERSION, description="of this schema")] = EVENT_VERSION
    at: Timestamp = Field(description="when it happened, ISO 8601 in UTC")

    @property
    def id(self) -> str:
        """The deduplication key: the same for every copy of the event."""
        return digest([self.detail_type, *(getattr(self, name) for name in self.identity)])[:_ID_LENGTH]

    def detail(self) -> dict[str, JsonValue]:
        """The event's `detail`."""
        return {"id": self.id, **self.model_dump(mode="json", exclude_none=True)}


class RunEvent(Event):
    """An event of a run."""

    run: str = Field(description="the run's name")


class RunStarted(RunEvent):
    """The spec was accepted and the plan was written; no job exists yet."""

    detail_type: ClassVar[str] = "Run Started"

    execution_arn: str = Field(description="the run's execution")
    replicas: int = Field(description="how many replicas train together")
    plan_digest: str = Field(description="SHA-256 of the plan; on every job of the run as the tag muster:plan")
    parent: str | None = Field(default=None, description="the run that this run continues")
    recipe: RunRecipe | None = Field(default=None, description="the run's recipe")


class ReplicaLaunched(RunEvent):
    """SageMaker, or a cluster, accepted the job of an attempt."""

    detail_type: ClassVar[str] = "Replica Launched"
    identity: ClassVar[tuple[str, ...]] = ("run", "rank", "attempt")

    rank: int = Field(description="which replica")
    attempt: int = Field(description="which of its attempts, from 1")
    job: str = Field(description="the job's name")
    cluster: str | None = Field(default=None, description="the HyperPod cluster; none for a training job")
    place: str | None = Field(default=None, description="of a run with `places`: where the job is")
    why: str | None = Field(default=None, description="of a run with `places`: why it is there")


class ReplicaRerun(RunEvent):
    """An attempt failed, and another one follows."""

    detail_type: ClassVar[str] = "Replica Rerun"
    identity: ClassVar[tuple[str, ...]] = ("run", "rank", "attempt")

    rank: int = Field(description="which replica")
    attempt: int = Field(description="the attempt that ended")
    failure_class: FailureClass = Field(description="why it ended (failures.md)")
    reason: str = Field(description="in SageMaker's own words")
    delay_seconds: int = Field(description="from the decision to the next attempt")


class QuorumLost(RunEvent):
    """Too few replicas can still succeed: the run is being stopped."""

    detail_type: ClassVar[str] = "Quorum Lost"

    reason: str = Field(description="which replica was lost, and why")


class ReplicaParked(RunEvent):
    """A replica has left: its seat is not wanted, or finds no capacity. It costs nothing until it is launched again."""

    detail_type: ClassVar[str] = "Replica Parked"
    identity: ClassVar[tuple[str, ...]] = ("run", "rank", "attempt")

    rank: int = Field(description="which replica")
    attempt: int = Field(description="the attempt that ended")
    reason: str = Field(description="why it is parked")


class RunScaled(RunEvent):
    """Another number of replicas is wanted."""

    detail_type: ClassVar[str] = "Run Scaled"
    identity: ClassVar[tuple[str, ...]] = ("run", "revision")

    revision: int = Field(description="of the run's seats: it grows with every change")
    replicas: int = Field(description="how many are wanted from now on")
    before: int = Field(description="how many were wanted before")
    opened: str = Field(description="the ranks that are launched, such as `8-15`; empty for none")
    closed: str = Field(description="the ranks that leave, such as `2,5`; empty for none")
    by: str = Field(description=ASKED_BY)


class ScaleRefused(RunEvent):
    """Another number of replicas was asked for and refused; nothing changed."""

    detail_type: ClassVar[str] = "Scale Refused"
    identity: ClassVar[tuple[str, ...]] = ("run", "by")

    replicas: int | None = Field(default=None, description="how many were asked for, if it was a whole number")
    by: str = Field(description=ASKED_BY)
    reason: str = Field(description="why it was refused, and what is allowed")


class RunEnded(RunEvent):
    """The run is settled: its result is written, and its jobs are stopped."""

    reason: str = Field(description="why it ended like this")
    replicas: int = Field(description="how many replicas trained together")
    reruns: int = Field(description="attempts after a failed one, all replicas together")
    result: str = Field(description="URI of the result, s3://…")
    rounds: int | None = Field(default=None, description="the last committed round")
    unit: str | None = Field(default=None, description="what the trainers count, such as `samples` or `tokens`")
    samples: float | None = Field(default=None, description="how many have counted in all rounds")
    samples_per_second: float | None = Field(
        default=None, description="how many counted in the last rounds, per second"
    )


class RunSucceeded(RunEnded):
    """The run is settled: enough replicas succeeded."""

    detail_type: ClassVar[str] = "Run Succeeded"


class RunFailed(RunEnded):
    """The run is settled: too few replicas succeeded."""

    detail_type: ClassVar[str] = "Run Failed"


class RunStopped(RunEnded):
    """The run is settled: it was stopped."""

    detail_type: ClassVar[str] = "Run Stopped"


class RunContinued(RunEvent):
    """A failed run is continued by a new run from the last committed round, because of its continuation policy."""

    detail_type: ClassVar[str] = "Run Continued"

    continued_by: str = Field(description="the name of the continuation")
    generation: int = Field(description="how many runs of the lineage came before the continuation")
    max: int = Field(description="how many continuations the policy allows")


class RunRefused(Event):
    """A run was requested and refused; nothing was created."""

    detail_type: ClassVar[str] = "Run Refused"
    identity: ClassVar[tuple[str, ...]] = ("request",)

    request: str = Field(description="its source: an execution's ARN, an object's s3://… or an event's id")
    error: str = Field(description="the kind of error, such as Muster.SpecError")
    problems: tuple[str, ...] = Field(
        description="what is wrong, one line each; of very many problems the first ones, and how many more there are"
    )


class ScaleRequested(Document):
    """The detail of an event that asks for another number of replicas of a run."""

    run: str = Field(min_length=1, max_length=80, description="the run's name")
    replicas: int = Field(ge=1, description="how many are wanted")


class RunRequested(Document):
    """The detail of an event that requests a run; whatever may put events on the bus can send it."""

    spec: JsonValue = Field(default=None, description="the spec itself")
    spec_uri: str | None = Field(default=None, description="or its URI: s3://BUCKET/inbox/… in the stack's bucket")


OUT: tuple[type[Event], ...] = (
    *(RunStarted, ReplicaLaunched, ReplicaRerun, QuorumLost),
    *(ReplicaParked, RunScaled, ScaleRefused),
    *(RunSucceeded, RunFailed, RunStopped, RunContinued, RunRefused),
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
        rounds=result.committed_rounds,
        unit=result.unit,
        samples=result.samples,
        samples_per_second=result.samples_per_second,
    )
