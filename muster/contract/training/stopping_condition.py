"""StoppingCondition, managed spot training, RetryStrategy: the limits of an attempt and SageMaker's retries."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.training.values import Section

MAX_RUNTIME_SECONDS = 2_419_200  # StoppingCondition: MaxRuntimeInSeconds, 28 days, all retries together


class RetryStrategy(Section):
    """SageMaker's own retries within one attempt."""

    maximum_retry_attempts: int = Field(ge=1, le=30, description="retries after an InternalServerError")


class TimeFields(Document):
    """How long an attempt may take."""

    max_runtime_seconds: int = Field(
        default=86_400, ge=1, le=MAX_RUNTIME_SECONDS, description="limit of one attempt, restarts included"
    )
    spot: bool = Field(default=False, description="managed spot training (EnableManagedSpotTraining)")
    max_wait_seconds: int | None = Field(
        default=None, ge=1, le=MAX_RUNTIME_SECONDS, description="limit of the runtime and the wait for spot together"
    )
    max_pending_seconds: int | None = Field(
        default=None, ge=1_800, le=2_419_200, description="limit of the wait for capacity (MaxPendingTimeInSeconds)"
    )
    retry_strategy: RetryStrategy | None = Field(
        default=None, description="SageMaker's own retries within one attempt; `reruns` are Muster's"
    )

    def time_problems(self, *, spot: bool) -> Iterator[Problem]:
        """Problems between the limits; `spot`: some rank is on spot."""
        if self.max_wait_seconds is not None and not spot:
            remedy = "set spot, or leave the field out"
            yield StatedProblem("max_wait_seconds", "allowed only with spot: true", remedy)
        if self.max_wait_seconds is not None and self.max_wait_seconds < self.max_runtime_seconds:
            allowed = f"at least max_runtime_seconds ({self.max_runtime_seconds}), because it includes the runtime"
            yield Problem("max_wait_seconds", str(self.max_wait_seconds), "raise it", allowed)

    def stopping_request(self) -> dict[str, int]:
        """StoppingCondition."""
        members = {
            "MaxRuntimeInSeconds": self.max_runtime_seconds,
            "MaxWaitTimeInSeconds": (self.max_wait_seconds or self.max_runtime_seconds) if self.spot else None,
            "MaxPendingTimeInSeconds": self.max_pending_seconds,
        }
        return {name: value for name, value in members.items() if value is not None}
