"""A job with a deadline on spot and on-demand instances, tick by tick, and the policies of two papers for it.

The papers: "Can't Be Late" (NSDI 2024), SkyNomad (2601.06520). They are played from their text. SkyNomad is without its
adjustment for volatile periods; the utility by which another instance must be better is that of its artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

HOUR = 10  # ticks
WORK = 100 * HOUR
SPOT = range(3)
ON_DEMAND = 3
"""Instances are numbered: spot in three regions, usually the cheapest first, and on demand."""
ON_DEMAND_USD = 3.06  # p3.2xlarge in the three regions
_PROBE = 2 * HOUR


@dataclass(frozen=True)
class Trace:
    """By instance and tick: whether there is one, and what it costs an hour."""

    there: npt.NDArray[np.bool_]
    usd: npt.NDArray[np.float64]


@dataclass
class Job:
    """What a policy sees at the begin of a tick. Only SkyNomad looks at what is there, when it probes.

    `on`: the instance on which the job ran and may run on; None where it was interrupted, or waits.
    """

    deadline: int
    usd: npt.NDArray[np.float64]
    there: npt.NDArray[np.bool_]
    tick: int = 0
    done: int = 0
    on: int | None = None

    @property
    def must_hurry(self) -> bool:
        """The safety net of both papers: if it waited for another tick, on demand would be late."""
        return self.deadline - self.tick <= WORK - self.done + 1


Policy = Callable[[Job], Iterator[int | None]]
"""Gives the instances that it tries in a tick, one after the other, until one is there. None: the job waits."""


def play(policy: Policy, on: Trace, deadline: int) -> tuple[float, int]:
    """The dollars that a job costs, and the tick at whose begin it is done. An instance starts for a tick."""
    job, spent = Job(deadline, on.usd[:, 0], on.there[:, 0]), 0.0
    for tick in range(on.there.shape[1]):
        was = job.on if job.on is not None and on.there[job.on, tick] else None
        job.tick, job.usd, job.there, job.on = tick, on.usd[:, tick], on.there[:, tick], was
        job.on = next((one for one in policy(job) if one is None or job.there[one]), None)
        if job.on is not None:
            spent += float(job.usd[job.on]) / HOUR
            job.done += job.on == was
        if job.done == WORK:
            return spent, tick + 1
    return inf, on.there.shape[1]


def optimum(on: Trace, deadline: int) -> float:
    """The least dollars for a job that is done in time: backward induction over ticks, by the work that is left."""
    waits = np.full(WORK + 1, inf)
    waits[0] = 0.0
    runs = [waits] * (ON_DEMAND + 1)
    for tick in reversed(range(deadline)):
        usd, able = on.usd[:, tick] / HOUR, np.flatnonzero(on.there[:, tick])
        waits = np.minimum.reduce([waits, *(usd[one] + runs[one] for one in able)])
        after = [waits] * (ON_DEMAND + 1)
        for one in able:
            after[one] = np.minimum(waits, np.append(0.0, usd[one] + runs[one][:-1]))
        runs = after
    return float(waits[WORK])


def on_demand(_job: Job) -> Iterator[int | None]:
    """Never on spot."""
    yield ON_DEMAND


def greedy(job: Job) -> Iterator[int | None]:
    """On spot whenever the cheapest region has it; on demand once it must be, until the end."""
    if job.on is None and not job.must_hurry:
        yield from (SPOT[0], None)
    yield ON_DEMAND if job.on is None else job.on


def uniform_progress(regions: Sequence[int], job: Job) -> Iterator[int | None]:
    """On spot while it lasts, else on demand while the job is behind an even progress, until it is two starts ahead."""
    if job.on is not None and job.on != ON_DEMAND:
        yield job.on
    even, is_on_demand = WORK / job.deadline, job.on == ON_DEMAND
    if job.must_hurry or (is_on_demand and job.done < (job.tick + 2) * even):
        yield ON_DEMAND
    yield from sorted(regions, key=lambda region: float(job.usd[region]))
    yield ON_DEMAND if job.done < job.tick * even else None


@dataclass
class Seen:
    """What SkyNomad has seen of a region: for how many ticks spot lasted each time, and since when it is there."""

    lasted: list[int] = field(default_factory=list)
    since: int | None = None

    def see(self, tick: int, *, there: bool) -> None:
        """What a probe, a launch or an interruption tells."""
        if there:
            self.since = tick if self.since is None else self.since
        elif self.since is not None:
            self.lasted.append(max(1, tick - self.since))
            self.since = None

    def share(self, tick: int) -> float:
        """Of the time for which spot is expected to last there, what is left after a start. Unknown: all of it."""
        age = 0 if self.since is None else tick - self.since
        if age >= max(self.lasted, default=0):
            return 1 - 1 / age if age else 1.0  # it lasts as long again
        ends = np.bincount(self.lasted)
        survival = np.exp(-np.cumsum(ends / np.cumsum(ends[::-1])[::-1]))  # Nelson and Aalen
        return max(0.0, 1 - float(survival[age] / survival[age + 1 :].sum()))


class SkyNomad:
    """Takes the highest utility V η - C: value of progress, share of an instance's life that trains, its price.

    V is what on demand costs where the job is on schedule. Its progress counts as a tick at least.
    """

    def __init__(self) -> None:
        self._seen = [Seen() for _ in SPOT]
        self._on: int | None = None

    def __call__(self, job: Job) -> Iterator[int | None]:
        """By utility; who waits has none."""
        for region, seen in enumerate(self._seen):
            if job.tick % _PROBE == 0 or region == self._on:
                seen.see(job.tick, there=bool(job.there[region]))
        if job.must_hurry:
            yield ON_DEMAND if job.on is None else job.on
        value = ON_DEMAND_USD * max(1, job.tick) / (job.deadline - job.tick) * (WORK - job.done) / max(1, job.done)
        shares = np.array([*(seen.share(job.tick) for seen in self._seen), 1.0])
        if job.on is not None:
            shares[job.on] = 1.0
        utility = value * shares - job.usd
        if job.on is not None and utility[job.on] > 0:
            utility[job.on] += 0.5 + 0.05 * value
        for self._on in map(int, np.argsort(-utility)):
            if utility[self._on] > 0:
                yield self._on
        self._on = None
        yield None
