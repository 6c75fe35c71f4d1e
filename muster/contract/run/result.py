"""The result of a run, written once to `control/{run}/result.json`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from muster.contract.document import Document
from muster.contract.run.attempt import Attempt
from muster.contract.timestamps import Timestamp

RESULT_VERSION = 1


class Verdict(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


class ReplicaOutcome(StrEnum):
    """How a replica ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    NOT_LAUNCHED = "not-launched"
    UNKNOWN = "unknown"  # its record cannot be read


class ReplicaResult(Document):
    """One replica in the settlement."""

    rank: int
    outcome: ReplicaOutcome
    attempts: tuple[Attempt, ...] = ()
    artifacts: str | None = None
    checkpoint_uri: str | None = None
    round: int | None = None
    checksum: str | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    problem: str | None = Field(default=None, description="why a value above is missing")


class Result(Document):
    """How a run ended."""

    version: Annotated[int, Field(ge=RESULT_VERSION, le=RESULT_VERSION)] = RESULT_VERSION
    run: str
    verdict: Verdict
    reason: str
    settled_at: Timestamp
    replicas: tuple[ReplicaResult, ...]
    reruns: int = Field(ge=0, description="attempts beyond the first, all replicas together")
    parameters_identical: bool | None = Field(
        default=None,
        description="whether all replicas that succeeded hold the same bytes; none when fewer than two report it",
    )
