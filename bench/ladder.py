"""What a ladder of `places` costs where spot instances come and go, beside the policies of two papers, in virtual time.

The decisions are real: `where` chooses the rung, and `judge` how long the replica waits before its next attempt. One
replica has 100 hours of work. A tick is six minutes. The optimum in hindsight knows the trace.

The traces are seeded, with the rates of the regions of SkyNomad's figure 9b: how long spot is there and is not, as
measured on the V100 trace of 2023-02-15 of "Can't Be Late" (skypilot-org/spot-traces), and prices as in SkyNomad's
artifact (andylizf/skynomad-artifact). 100 hours of work in 150, a start of six minutes, which is paid, and that on
demand is always there are SkyNomad's. Assumed is that times are lognormal, that prices are exponential, and that no
region depends on another. For all policies egress and probes cost nothing, and no training is lost. Ours alone waits: a
refusal takes a tick, and its budgets have the default waits, but 90 reruns instead of 20. An interruption ends its
attempt; SageMaker may instead wait in the region, up to `max_wait_seconds`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from math import ceil, log, sqrt
from statistics import fmean

import numpy as np

from bench.spot_jobs import (
    HOUR,
    ON_DEMAND,
    ON_DEMAND_USD,
    SPOT,
    WORK,
    Job,
    Policy,
    SkyNomad,
    Trace,
    greedy,
    on_demand,
    optimum,
    play,
    uniform_progress,
)
from bench.table import Row
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Next
from muster.contract.run.where import Where
from muster.contract.spec.places import Places
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.timestamps import Timestamp
from muster.control import rerun_decision
from muster.options.places.contract.ladder import Facts, RungState, longest_wait, where

_TICK = 3_600.0 / HOUR
_TICKS = 300 * HOUR
_BEFORE = 100 * HOUR
"""What is cut off, so that spot may be there at the begin or not."""
_TRACES = 20
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_BUDGET = {"max_reruns": 90, "delay_seconds": 60, "max_delay_seconds": 1_800}


@dataclass(frozen=True)
class Region:
    """Hours for which spot is there and is not, mean and median. Least, mean and highest price; hours between two."""

    place: str
    up: tuple[float, float]
    down: tuple[float, float]
    usd: tuple[float, float, float]
    price_hours: float


REGIONS = (
    Region("ohio", (4.26, 1.08), (1.98, 0.70), (0.918, 0.928, 1.033), 7.8),  # us-east-2b
    Region("oregon", (6.06, 1.03), (0.81, 0.38), (0.918, 0.945, 1.046), 3.8),  # us-west-2a
    Region("home", (1.48, 0.49), (1.69, 0.54), (1.168, 1.278, 1.405), 1.9),  # us-east-1c
)


class Ladder:
    """A replica's attempts, and what Muster decides after each."""

    def __init__(self, deadline: int) -> None:
        ladder = [*({"place": region.place, "spot": True} for region in REGIONS), {"place": "home"}]
        places = {"ladder": ladder, "by_seconds": round(deadline * _TICK)}
        reruns = {"capacity": _BUDGET, "spot": _BUDGET}
        self._spec = parse_spec({"replicas": 1, "trainer": "a.b:c", "places": places, "reruns": reruns})
        self._places = self._spec.places or Places()
        self._attempts: tuple[Attempt, ...] = ()
        self._on: Where | None = None
        self._waits_until = 0

    def __call__(self, job: Job) -> Iterator[int | None]:
        """Its instance as long as it lasts, else the rung of its next attempt."""
        if job.on is not None:
            yield job.on
        if self._on is not None:
            self._end(self._on, job.tick, FailureClass.SPOT)
        if job.tick >= self._waits_until:
            facts = Facts(
                now=_at(job.tick),
                rungs=[RungState()] * len(self._places.ladder),
                left_seconds=(WORK - job.done) * _TICK if job.done else None,
                until_deadline=(job.deadline - job.tick) * _TICK,
                wait_seconds=longest_wait(self._spec),
            )
            self._on = where(self._places, self._attempts, facts)
            yield self._on.rung
            self._end(self._on, job.tick + 1, FailureClass.CAPACITY)
        yield None

    def _end(self, on: Where, tick: int, why: FailureClass) -> None:
        number = len(self._attempts) + 1
        ended = Attempt(attempt=number, job=f"job-{number}", ended_at=_at(tick), failure_class=why, where=on)
        self._attempts = (*self._attempts, ended)
        facts = rerun_decision.Facts(self._spec, stopping=False, ceiling=None, now=_at(tick))
        decision = rerun_decision.judge(0, self._attempts, facts)
        assert decision.next is Next.RERUN, decision
        self._waits_until, self._on = tick + ceil(decision.delay_seconds / _TICK), None


_PEERS: dict[str, Sequence[Callable[[], Policy]]] = {
    "SkyNomad": [SkyNomad],
    "uniform progress in all regions, UP(S)": [partial(partial, uniform_progress, SPOT)],
    "uniform progress in one region": [partial(partial, uniform_progress, [region]) for region in SPOT],
    "greedy in the cheapest region": [lambda: greedy],
    "on demand": [lambda: on_demand],
}


def run() -> list[Row]:
    """The rows: see the module's docstring for what is real and what is assumed."""
    traces = [trace(seed) for seed in range(_TRACES)]
    return [row for hours in (150, 120) for row in _rows(traces, hours)]


def trace(seed: int) -> Trace:
    """Spot in the three regions, and on demand."""
    rng, ticks = random.Random(seed), _BEFORE + _TICKS  # noqa: S311 - the same traces in every run
    there, usd = np.ones((ON_DEMAND + 1, ticks), bool), np.full((ON_DEMAND + 1, ticks), ON_DEMAND_USD)
    for number, region in enumerate(REGIONS):
        at, is_up, (low, usual, high) = 0, True, region.usd
        while at < ticks:
            mean, median = region.up if is_up else region.down
            end = at + max(1, round(HOUR * rng.lognormvariate(log(median), sqrt(2 * log(mean / median)))))
            there[number, at:end], at, is_up = is_up, end, not is_up
        at = 0
        while at < ticks:
            end = at + max(1, round(HOUR * rng.expovariate(1 / region.price_hours)))
            usd[number, at:end], at = min(high, low + rng.expovariate(1 / (usual - low))), end
    return Trace(there[:, _BEFORE:], usd[:, _BEFORE:])


def _rows(traces: Sequence[Trace], hours: int) -> Iterator[Row]:
    deadline = hours * HOUR
    least = [optimum(one, deadline) for one in traces]

    def played(policies: Sequence[Callable[[], Policy]]) -> tuple[float, int, str]:
        """Cost by the optimum's, deadlines missed, and both in words."""
        pairs = [(new(), one, best) for one, best in zip(traces, least, strict=True) for new in policies]
        ends = [(*play(policy, one, deadline), best) for policy, one, best in pairs]
        ratios, late = [usd / best for usd, _, best in ends], sum(end > deadline for _, end, _ in ends)
        return fmean(ratios), late, f"{len(ends)} jobs, the worst {max(ratios):.2f}, deadlines missed {late}"

    title = f"100 h of work in {hours} h: "
    found = {name: played(policies) for name, policies in _PEERS.items()}
    cost, late, note = played([partial(Ladder, deadline)])
    peer, peer_late, _ = found["SkyNomad"]
    note += f"; the optimum: ${fmean(least):.2f}; peer: SkyNomad, whose paper says 1.06 to 1.12"
    yield Row(f"{title}cost of the ladder", cost, "of the optimum", "<= 1.1", peer, note)
    yield Row(f"{title}deadlines missed", late, f"of {len(traces)}", "== 0", peer_late)
    for name, (cost, _, note) in found.items():
        yield Row(f"{title}cost of {name}", cost, "of the optimum", note=note)


def _at(tick: int) -> Timestamp:
    return timestamps.text(_BEGIN + timedelta(seconds=tick * _TICK))
