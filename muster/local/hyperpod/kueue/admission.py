"""Which waiting workloads are admitted, and which admitted ones give way. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from muster.local.hyperpod.quantities import Amounts, lacking, times, total


@dataclass(frozen=True)
class Quota:
    """A cluster queue: what its workloads may use together, and whether a lower priority gives way."""

    nominal: Amounts
    preempts: bool


@dataclass(frozen=True)
class Claim:
    """A workload's claim on its queue."""

    key: str
    queue: str
    priority: int
    created: str
    """When, as text that sorts."""
    each: Amounts
    """Of one pod."""
    counts: tuple[int, ...]
    """The numbers of pods with which it can run, rising; one unless it is elastic. Spares are included."""
    granted: int = 0
    """The pods for which it has quota; 0 while it waits."""
    granted_at: float = 0.0
    releasing: int = 0
    """The pods of a workload that was evicted and that still end."""
    held: bool = False
    """It may not be admitted now."""


@dataclass
class Decision:
    """What changes."""

    grants: dict[str, int] = field(default_factory=dict)
    """Pods that a workload gets now: one that waited is admitted, an elastic one may get more."""
    evictions: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    """Why a workload waits, in Kueue's words."""


def decide(claims: Sequence[Claim], quotas: Mapping[str, Quota]) -> Decision:
    """Admit in the order of priority and age what fits; where a lower priority is in the way, evict that first."""
    decision = Decision()
    for name, quota in quotas.items():
        _decide_queue([claim for claim in claims if claim.queue == name], quota, decision)
    for claim in claims:
        if claim.queue not in quotas and not claim.granted:
            decision.waiting[claim.key] = f"ClusterQueue {claim.queue} doesn't exist"
    return decision


def _decide_queue(claims: Sequence[Claim], quota: Quota, decision: Decision) -> None:
    usage = total(times(claim.each, max(claim.granted, claim.releasing)) for claim in claims)
    running = {claim.key: claim for claim in claims if claim.granted}
    for claim in sorted(claims, key=lambda item: (-item.priority, item.created, item.key)):
        if claim.granted or claim.releasing:
            continue
        if claim.held:
            decision.waiting[claim.key] = "The workload was evicted and waits to be queued again"
            continue
        uncovered = sorted(set(_needed(claim)) - set(quota.nominal))
        if uncovered:
            decision.waiting[claim.key] = f"resource {uncovered[0]} unavailable in ClusterQueue"
            continue
        least = times(claim.each, claim.counts[0])
        over = lacking(_covered(least, quota), _left(quota, usage))
        if not over:
            count = _largest(claim, quota, usage)
            decision.grants[claim.key] = count
            usage = total((usage, times(claim.each, count)))
            continue
        victims = _victims(claim, running, quota, usage) if quota.preempts else []
        for victim in victims:
            decision.evictions.append(victim.key)
            del running[victim.key]
        if victims:
            # What is freed is for this one alone.
            usage = total((usage, times(least, 1)))
        decision.waiting[claim.key] = (
            f"couldn't assign flavors to pod set: insufficient unused quota for {over[0]} in the ClusterQueue"
            + (", preempting" if victims else "")
        )
    for claim in running.values():
        if claim.counts[-1] > claim.granted and claim.key not in decision.evictions:
            grown = _grown(claim, quota, usage)
            if grown > claim.granted:
                decision.grants[claim.key] = grown
                usage = total((usage, times(claim.each, grown - claim.granted)))


def _needed(claim: Claim) -> list[str]:
    return [name for name, amount in claim.each.items() if amount and name not in _NEVER_COUNTED]


# Kueue counts what its queues cover; pods are counted only where a queue covers them.
_NEVER_COUNTED = frozenset({"pods", "ephemeral-storage"})


def _covered(wanted: Amounts, quota: Quota) -> Amounts:
    return {name: amount for name, amount in wanted.items() if name in quota.nominal}


def _left(quota: Quota, usage: Amounts) -> dict[str, Fraction]:
    return {name: amount - usage.get(name, Fraction(0)) for name, amount in quota.nominal.items()}


def _largest(claim: Claim, quota: Quota, usage: Amounts) -> int:
    free = _left(quota, usage)
    fitting = [count for count in claim.counts if not lacking(_covered(times(claim.each, count), quota), free)]
    return fitting[-1]


def _grown(claim: Claim, quota: Quota, usage: Amounts) -> int:
    free = _left(quota, usage)
    fitting = [
        count
        for count in claim.counts
        if count > claim.granted and not lacking(_covered(times(claim.each, count - claim.granted), quota), free)
    ]
    return fitting[-1] if fitting else claim.granted


def _victims(claim: Claim, running: Mapping[str, Claim], quota: Quota, usage: Amounts) -> list[Claim]:
    """The workloads to evict: lowest priority first, of these the newest; none where all would not be enough."""
    lower = sorted(
        (other for other in running.values() if other.priority < claim.priority),
        key=lambda other: (other.priority, -other.granted_at),
    )
    least, used, chosen = times(claim.each, claim.counts[0]), dict(usage), []
    for other in lower:
        chosen.append(other)
        for name, amount in times(other.each, other.granted).items():
            used[name] = used.get(name, Fraction(0)) - amount
        if not lacking(_covered(least, quota), _left(quota, used)):
            return chosen
    return []
