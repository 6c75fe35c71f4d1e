"""Seats that come and go while the model trains: `replicas: {min, start, max}`, and `elastic` of a spec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, Self

from pydantic import Field

from muster.contract import names
from muster.contract.document import Document
from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.run_limits import RUN_MAX_SECONDS

QUORUM = 0.75
"""Of those who are expected, where seats come and go and the spec does not say otherwise."""
SCHEDULED = "schedule-"
"""How the run's own requests are named: this and the number of the step of `scale`."""
ASKED_BY = f"who asked: an event's id, or `{SCHEDULED}0` for the first step of `elastic.scale`"
_SNAPSHOT_WRITERS_MAX = 64
_NAMES = ("min", "start", "max")


class ScaleStep(Document):
    """A time at which the run gets another number of replicas."""

    after_seconds: int = Field(ge=1, le=RUN_MAX_SECONDS, description="counted from the run's launch")
    replicas: int = Field(ge=1, le=names.REPLICAS_MAX, description="how many seats are wanted from then on")


class Elastic(Document):
    """How many of a run's seats are wanted, and what follows where there is no capacity."""

    min: int = Field(ge=1, le=names.REPLICAS_MAX, description="the fewest replicas that train the model on")
    start: int = Field(ge=1, le=names.REPLICAS_MAX, description="how many seats are wanted at the launch")
    park_after_seconds: int = Field(
        default=900,
        ge=0,
        le=RUN_MAX_SECONDS,
        description="how long a seat looks for capacity or quota before it is parked",
    )
    retry_parked_seconds: int = Field(
        default=1_800,
        ge=60,
        le=86_400,
        description="how long a seat without capacity is parked before it looks again",
    )
    below_min: Literal["wait", "stop"] = Field(
        default="wait",
        description="what follows while fewer than `min` seats have an instance or may soon have one: the others wait, "
        "or the run is stopped",
    )
    budget_usd_per_hour: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="dollars for an hour of all replicas: scaling opens no more seats than they pay for, and at least "
        "`min`",
    )
    scale: list[ScaleStep] = Field(default_factory=list, max_length=50, description="times of other numbers")

    def problems(self, replicas: int) -> Iterator[Problem]:
        """What does not fit together in a run with so many seats. Pure."""
        if self.start > replicas:
            yield Problem("replicas.start", str(self.start), "lower it", f"at most replicas.max ({replicas})")
        if self.min > self.start:
            yield Problem("replicas.min", str(self.min), "lower it", f"at most replicas.start ({self.start})")
        for number, step in enumerate(self.scale):
            yield from scale_problems(self, replicas, step.replicas, f"elastic.scale[{number}].replicas")
        times = [step.after_seconds for step in self.scale]
        if times != sorted(set(times)):
            yield StatedProblem("elastic.scale", "the times do not ascend", "sort the steps by after_seconds")


def snapshot_writers(replicas: int, *, elastic: bool) -> int:
    """How many members write a shard of each snapshot: those who read it need the same number.

    Of an elastic run's seats most may be empty, so that each of a few members writes some shards.
    """
    return min(replicas, _SNAPSHOT_WRITERS_MAX) if elastic else replicas


class SeatLimits(NamedTuple):
    """The numbers of replicas that an elastic run may have."""

    least: int
    start: int
    most: int

    @classmethod
    def of(cls, document: Mapping[str, object]) -> Self | None:
        """Those of a spec as it was written; None where the number is fixed, or the spec cannot be read."""
        read = with_seats(document)
        replicas, section = read.get("replicas"), read.get("elastic")
        most = replicas.get("max") if isinstance(replicas, Mapping) else replicas
        limits = [*map(section.get, ("min", "start")), most] if isinstance(section, Mapping) else []
        numbers = [one for one in limits if isinstance(one, int)]
        return cls(*numbers) if len(numbers) == len(cls._fields) else None


def scale_problems(elastic: Elastic, replicas: int, wanted: int, field: str = "replicas") -> Iterator[Problem]:
    """Why a run with so many seats cannot be scaled to `wanted`. Pure."""
    if not elastic.min <= wanted <= replicas:
        allowed = f"{elastic.min} to {replicas}, the run's replicas.min and replicas.max"
        yield Problem(field, str(wanted), "write another number", allowed)


def range_problems(given: Mapping[object, object]) -> Iterator[Problem]:
    """What is wrong in the mapping that a spec has as `replicas`. Pure."""
    for name in given:
        if name not in _NAMES:
            yield StatedProblem(f"replicas.{name}", "unknown field", "replicas has min, start and max")
    for name in _NAMES:
        value = given.get(name)
        if name not in given:
            yield StatedProblem(f"replicas.{name}", "missing", "write min, start and max, or one number for all three")
        elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= names.REPLICAS_MAX:
            allowed = f"a whole number from 1 to {names.REPLICAS_MAX:,}"
            yield Problem(f"replicas.{name}", repr(value)[:40], "correct it", allowed)


def with_seats(document: Mapping[str, object]) -> dict[str, object]:
    """A spec's fields; `replicas: {min, start, max}` becomes the number of seats and the section `elastic`."""
    given, section = document.get("replicas"), document.get("elastic", {})
    if isinstance(given, Mapping) and isinstance(section, Mapping):
        # What is wrong in the range is said of it alone.
        sound = {"min": 1, "start": 1} if any(range_problems(given)) else given
        document = {**document, "elastic": {"min": sound["min"], "start": sound["start"], **section}}
    section = document.get("elastic")
    if not isinstance(section, Mapping):
        return dict(document)
    return {"on_replica_failure": "continue", "min_replicas": section.get("min"), **document}
