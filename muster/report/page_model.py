"""The contents of a page: a closed document, which the page also contains as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, JsonValue

from muster.contract.document import Document
from muster.contract.run.attempt import Attempt
from muster.contract.run.round_values import DEFAULT_UNIT
from muster.contract.run.run_cost import egress_usd
from muster.contract.run.seat_states import SeatsView
from muster.contract.run.time_use import TimeUse
from muster.contract.run.trained_data import EpochShards
from muster.contract.run.training_pace import Pace
from muster.contract.timestamps import Timestamp
from muster.report.figures import Fact
from muster.report.time_split import TimeSplit

if TYPE_CHECKING:
    from muster.contract.run.finding import Finding
    from muster.contract.run.model import ModelResult
    from muster.contract.run.plan import Plan

PAGE_VERSION = 1


class ReplicaView(Document):
    """One replica with all its attempts."""

    rank: int
    state: str = Field(description="its outcome, or until it has one, its job's status")
    attempts: tuple[Attempt, ...] = ()
    usd: tuple[float | None, ...] = Field(
        default=(),
        description="cost of each attempt, by what is billed where that is known; none without a price",
    )
    round: int | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    checkpoint_uri: str | None = None
    artifacts: str | None = None
    problem: str | None = None
    finished_early: str | None = Field(
        default=None, description="how the replica finished, where others train on or did; none where none did"
    )


class MetricView(Document):
    """One metric: merged for every round, and of every rank separately, up to the last one that has contributed.

    `cells` holds one value for each of these ranks and each `bucket` rounds, rank by rank, as base64: little-endian
    float32 with NaN for none, or to save space one byte: 255 for none, otherwise 0 to 254 from `least` to `greatest`.
    """

    name: str
    mean: tuple[float | None, ...] = Field(description="of each round, with the weights of the contributions")
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    bits: int
    bucket: int
    least: float
    greatest: float
    cells: str


class TimesView(Document):
    """What the replicas did in each round. Lists by activity are in the order of `Activity`.

    `shares` holds, rank by rank up to the last one that has contributed, for each `bucket` rounds, the share of every
    activity in their duration, as base64 of one byte each: 255 for all of it.
    """

    means: tuple[tuple[float | None, ...], ...] = Field(description="by activity and round: mean seconds of a member")
    by_rank: tuple[tuple[float, ...], ...] = Field(description="by activity and rank: seconds of all rounds")
    bucket: int
    shares: str


class RoundsView(Document):
    """The rounds that were read, one entry each in every list."""

    total: int = Field(default=0, description="the latest committed round")
    numbers: tuple[int, ...] = ()
    at: tuple[float, ...] = Field(default=(), description="seconds from the run's start")
    seconds: tuple[float | None, ...] = Field(
        default=(),
        description="duration of one round, averaged since the round before in this list; of the first since the start",
    )
    times: TimesView | None = Field(default=None, description="none where no contribution says its times")
    waited_for: tuple[int | None, ...] = Field(default=(), description="the rank for which the others waited")
    time_use: TimeUse | None = Field(default=None, description="of all replicas, as the latest commit says it")
    members: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    rates: tuple[float | None, ...] = Field(default=(), description="what counted in a round, per second of it")
    unit: str = Field(default=DEFAULT_UNIT, description="what the trainers count, such as `samples` or `tokens`")
    samples: float | None = Field(default=None, description="how many have counted in all rounds")
    crossed_bytes: float | None = Field(default=None, description="what went between places; none at one place")
    data: EpochShards | None = Field(default=None, description="how far the run is in its data")
    expected: int | None = Field(default=None, description="how many rounds the trainers expect in all")
    last_at: Timestamp | None = Field(default=None, description="when the latest round was committed")
    pace: Pace | None = Field(default=None, description="of the last rounds, of the run and of each replica")
    unread: int = Field(default=0, description="commits that could not be read and are left out")
    metrics: tuple[MetricView, ...] = ()


class Links(Document):
    """Links to AWS consoles. `{job}` stands for a training job's name, `{cluster}` for a HyperPod cluster's."""

    execution: str
    job: str
    logs: str
    run_jobs: str
    run_logs: str
    recipe: str | None = None
    cluster: str | None = Field(default=None, description="none where no replica is on a cluster")
    cluster_logs: str | None = None


class SweepView(Document):
    """What the replicas of a sweep differ in, and what each has reached, by rank."""

    names: tuple[str, ...] = Field(description="of the values that differ, in the order of the spec")
    short: tuple[str, ...] = Field(description="the same names, as short as they can be")
    values: tuple[tuple[str, ...], ...]
    metrics: tuple[str, ...] = Field(default=(), description="the last metrics of the replicas, by name")
    last: tuple[tuple[float | None, ...], ...] = Field(default=(), description="by rank and metric")
    best: tuple[int | None, ...] = Field(
        default=(), description="by metric: the rank with the best value; none where that is not known"
    )


class Page(Document):
    """Everything that a page shows."""

    version: Annotated[int, Field(ge=PAGE_VERSION, le=PAGE_VERSION)] = PAGE_VERSION
    run: str
    state: str
    verdict: str = Field(description="in words: did it work")
    problems: tuple[str, ...] = Field(default=(), description="in words: why not, the most important one first")
    time: tuple[str, ...] = Field(default=(), description="in words: where the time went")
    split: TimeSplit = Field(default_factory=TimeSplit, description="where the time went")
    made_at: Timestamp
    started_at: Timestamp
    ended_at: Timestamp | None = None
    facts: tuple[Fact, ...]
    links: Links
    replicas: tuple[ReplicaView, ...]
    rounds: RoundsView
    egress_usd: float | None = Field(default=None, description="dollars for what went between places")
    sweep: SweepView | None = Field(default=None, description="none where the replicas train together")
    seats: SeatsView | None = Field(default=None, description="of an elastic run; none where the number is fixed")
    plan: dict[str, JsonValue]


@dataclass(frozen=True)
class PageInput:
    """The state of a run at one time: everything that its page shows."""

    plan: Plan
    state: str
    reason: str
    made_at: Timestamp
    ended_at: Timestamp | None
    replicas: Sequence[ReplicaView]
    rounds: RoundsView
    parameters_identical: bool | None = None
    continued_by: str | None = None
    model: ModelResult | None = None
    model_problem: str | None = None
    findings: Sequence[Finding] = ()
    seats: SeatsView | None = None

    @property
    def egress_usd(self) -> float | None:
        """Dollars for what has gone between places; None at one place."""
        return egress_usd(self.plan, self.rounds.total, self.rounds.crossed_bytes)
