"""What a page tells: a closed document, which the page also holds as JSON."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, JsonValue

from muster.contract.document import Document
from muster.contract.run.attempt import Attempt

PAGE_VERSION = 1


class ReplicaView(Document):
    """One replica with all its attempts."""

    rank: int
    state: str = Field(description="its outcome, or while it has none its job's status")
    attempts: tuple[Attempt, ...] = ()
    usd: tuple[float | None, ...] = Field(
        default=(), description="the cost of each attempt so far, by the shipped prices; none without a price"
    )
    round: int | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    checkpoint_uri: str | None = None
    artifacts: str | None = None
    problem: str | None = None


class MetricView(Document):
    """One metric: merged for every round, and of every rank.

    `cells` holds one value for each rank and each `bucket` rounds, rank by rank, as base64: float32 with NaN for none
    (little-endian), or, where that would be too much, one byte: 255 for none, else 0 to 254 from `least` to `greatest`.
    """

    name: str
    mean: tuple[float | None, ...] = Field(description="of each round, weighted as the round was")
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    bits: int
    bucket: int
    least: float
    greatest: float
    cells: str


class RoundsView(Document):
    """The rounds that were read, one entry each in every list."""

    total: int = Field(default=0, description="the latest committed round")
    numbers: tuple[int, ...] = ()
    at: tuple[float, ...] = Field(default=(), description="seconds from the run's start")
    seconds: tuple[float | None, ...] = Field(default=(), description="for one round, up to this one")
    blocked: tuple[float | None, ...] = Field(default=(), description="seconds of it that replicas waited, on average")
    members: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    metrics: tuple[MetricView, ...] = ()


class Links(Document):
    """Consoles. `{job}` stands for a training job's name."""

    execution: str
    job: str
    logs: str
    run_jobs: str
    run_logs: str


class Fact(Document):
    """A line of the summary."""

    label: str
    value: str
    note: str = ""


class Page(Document):
    """Everything that a page shows."""

    version: Annotated[int, Field(ge=PAGE_VERSION, le=PAGE_VERSION)] = PAGE_VERSION
    run: str
    state: str
    verdict: str = Field(description="in words")
    made_at: str
    started_at: str
    ended_at: str | None = None
    facts: tuple[Fact, ...]
    links: Links
    replicas: tuple[ReplicaView, ...]
    rounds: RoundsView
    plan: dict[str, JsonValue]
