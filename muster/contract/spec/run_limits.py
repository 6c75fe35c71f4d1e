"""The limits of a run: how soon its replicas must train, how long it may last, and what it may cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from muster.contract.aws.prices import SHIPPED_PRICES, PriceTable
from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.names import REPLICAS_MAX
from muster.contract.training.values import InstanceType

# Step Functions: a Standard execution lives at most a year.
RUN_MAX_SECONDS = 31_536_000


class Timer(StrEnum):
    """A one-time schedule of a run, at which Muster checks the run once."""

    LAUNCH_GATE = "launch-gate"
    DEADLINE = "deadline"


class LaunchGate(Document):
    """How many replicas must be training within a time after the launch. Otherwise the run is stopped."""

    replicas: int = Field(ge=1, le=REPLICAS_MAX, description="how many must be training by then, or have succeeded")
    within_seconds: int = Field(
        ge=1, le=RUN_MAX_SECONDS, description="counted from the run's launch; a timer is at most one minute late"
    )


class LimitFields(Document):
    """The limits of a run."""

    launch_gate: LaunchGate | None = Field(
        default=None,
        description="replicas that must be training within a time; otherwise the run is stopped",
    )
    deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=RUN_MAX_SECONDS,
        description="time after its launch at which the run is stopped, whatever its replicas do",
    )

    cost_ceiling_usd: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000_000,
        description="dollars for instances, by the shipped price table, and for traffic between places; once they are "
        "spent, no replica is rerun",
    )
    usd_per_hour: dict[InstanceType, Annotated[float, Field(gt=0, le=100_000)]] = Field(
        default_factory=dict,
        max_length=50,
        description="dollars for an hour of instance types, in place of the shipped price table's, such as "
        "`{ml.p5en.48xlarge: 80}`",
    )

    @property
    def prices(self) -> PriceTable:
        """The shipped prices, and those of the spec."""
        return SHIPPED_PRICES.with_prices(self.usd_per_hour)

    def limit_problems(self, replicas: int, instance_types: Iterable[str]) -> Iterator[Problem]:
        """Problems between the limits and the run; `instance_types` are all types that a replica may run on."""
        if self.cost_ceiling_usd is not None:
            yield from self.price_problems("cost_ceiling_usd", instance_types)
        gate = self.launch_gate
        if gate is not None and gate.replicas > replicas:
            allowed = f"at most replicas ({replicas})"
            yield Problem("launch_gate.replicas", str(gate.replicas), "lower it", allowed)
        if gate is not None and self.deadline_seconds is not None and gate.within_seconds >= self.deadline_seconds:
            allowed = f"less than deadline_seconds ({self.deadline_seconds})"
            yield Problem("launch_gate.within_seconds", str(gate.within_seconds), "lower it", allowed)

    def price_problems(self, field: str, instance_types: Iterable[str]) -> Iterator[Problem]:
        """The types without a price, which `field` needs of each."""
        prices = self.prices
        for name in sorted({name for name in instance_types if name not in prices.usd_per_hour}):
            statement = f"the price table of {prices.as_of} has no price for {name}"
            today = f"`muster plan --deployed` without {field} shows today's price"
            remedy = f"write usd_per_hour: {{{name}: DOLLARS}}; {today}"
            yield StatedProblem(field, statement, remedy)

    def timers(self) -> dict[Timer, int]:
        """The timers of a run, each with its seconds after the launch."""
        wanted = {
            Timer.LAUNCH_GATE: self.launch_gate.within_seconds if self.launch_gate else None,
            Timer.DEADLINE: self.deadline_seconds,
        }
        return {timer: seconds for timer, seconds in wanted.items() if seconds is not None}
