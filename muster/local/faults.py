"""Faults on demand: what can be asked for.

Every fault has a `count`, how often it may fire (None: without limit). The service counts how often it did, so that a
test can assert that the fault happened.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter


class FaultBase(BaseModel):
    """What every fault has."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int | None = Field(default=1, ge=1)
    """How often it fires; None for no limit."""


class _JobFault(FaultBase):
    job: str = "*"
    """Glob over training job names."""


class SpotInterruption(_JobFault):
    """Managed spot takes the instance: SIGTERM, grace, Interrupted, Restarting, the same job in a new process."""

    kind: Literal["spot-interruption"] = "spot-interruption"
    after_seconds: float = Field(default=0, ge=0)
    """Since the process started."""
    wait_seconds: float | None = Field(default=None, ge=0)
    """How long no new instance is found; counts towards MaxWaitTimeInSeconds. None: one phase."""


class LostInstance(_JobFault):
    """The instance is gone at once: in-job restart while RetryStrategy has attempts, else InternalServerError."""

    kind: Literal["lost-instance"] = "lost-instance"
    after_seconds: float = Field(default=0, ge=0)


class Crash(_JobFault):
    """The container's process ends with `exit_code` as if the user's code had crashed."""

    kind: Literal["crash"] = "crash"
    after_seconds: float = Field(default=0, ge=0)
    exit_code: int = Field(default=1, ge=1, le=255)


class CapacityError(_JobFault):
    """No instance is available: the job ends Failed with a CapacityError before its process starts."""

    kind: Literal["capacity-error"] = "capacity-error"


class SlowStart(_JobFault):
    """The job stays in Starting this much longer."""

    kind: Literal["slow-start"] = "slow-start"
    seconds: float = Field(gt=0)


class QuotaError(_JobFault):
    """CreateTrainingJob answers ResourceLimitExceeded."""

    kind: Literal["quota-error"] = "quota-error"


class CallError(FaultBase):
    """A call at the endpoint answers an error, before its effect or after it."""

    kind: Literal["call-error"] = "call-error"
    service: str = "*"
    """The signing name, a glob: sagemaker, s3, states, lambda, events, logs, sts, iam, cloudformation."""
    operation: str = "*"
    """Glob over operation names: CreateTrainingJob, PutObject."""
    resource: str = "*"
    """Glob over the resource: bucket/key, a REST path, or any string member of a JSON request."""
    caller: str = "*"
    """Glob over the caller: a role's name, `root`, `sagemaker.amazonaws.com` for the platform's own transfers."""
    code: str = "InternalFailure"
    message: str = "We encountered an internal error. Please try again."
    status: int = Field(default=500, ge=400, le=599)
    after_effect: bool = False
    """Execute the call first: only its answer is lost."""
    disconnect: bool = False
    """Close the connection in the middle of the answer instead of sending the error."""


class RateLimit(FaultBase):
    """A token bucket for matching calls: a call that finds it empty is throttled."""

    kind: Literal["rate-limit"] = "rate-limit"
    count: None = None
    service: str = "sagemaker"
    operation: str = "*"
    per_second: float = Field(gt=0)
    burst: int = Field(default=1, ge=1)


class EventFault(_JobFault):
    """A state-change event that is dropped, sent more than once, late, or after the job's next one."""

    kind: Literal["event"] = "event"
    action: Literal["drop", "duplicate", "delay", "reorder"]
    status: str = "*"
    """Glob over the event's TrainingJobStatus or SecondaryStatus."""
    seconds: float = Field(default=1.0, gt=0)
    """Delay; for reorder the longest wait for a next event."""
    copies: int = Field(default=2, ge=2)
    """How often a duplicated event is sent in all."""


Fault = Annotated[
    SpotInterruption
    | LostInstance
    | Crash
    | CapacityError
    | SlowStart
    | QuotaError
    | CallError
    | RateLimit
    | EventFault,
    Field(discriminator="kind"),
]
FAULT: TypeAdapter[Fault] = TypeAdapter(Fault)


class FaultReport(BaseModel):
    """One fault, and how often it fired."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    fault: Fault
    fired: int


FAULT_REPORTS: TypeAdapter[list[FaultReport]] = TypeAdapter(list[FaultReport])


def throttled(service: str, operation: str, count: int | None = 1) -> CallError:
    """The answer of AWS to a call above the rate limit."""
    if service == "s3":
        return CallError(
            service=service,
            operation=operation,
            count=count,
            code="SlowDown",
            message="Please reduce your request rate.",
            status=503,
        )
    return CallError(
        service=service,
        operation=operation,
        count=count,
        code="ThrottlingException",
        message="Rate exceeded",
        status=400,
    )
