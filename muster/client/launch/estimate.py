"""What a run needs and may cost at most. Pure: functions of the spec and of prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.prices import PriceTable
from muster.contract.backend import Backend
from muster.contract.document import Document
from muster.contract.names import ATTEMPT_MAX
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.run_cost import held_instances
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS
from muster.contract.spec.spec import Spec
from muster.contract.spec.watch_rules import Rule

# An attempt that ended in one of these classes had no instance, so it is not billed.
_UNBILLED = {FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.THROTTLE}
_HOUR = 3_600


class Quota(Document):
    """A quota as Service Quotas names it."""

    name: str
    instances: int = Field(description="how many of it the run needs")
    for_fallbacks: int = Field(
        default=0, description="how many more, if every replica had to take a fallback of this type"
    )


class ClusterShare(Document):
    """What the run needs of one cluster, in one queue of it."""

    cluster: str = Field(description="empty: the stack's only one")
    queue: str | None = Field(default=None, description="Kueue's local queue; none: Kueue does not hold the jobs")
    instance_type: str
    instances: int = Field(description="that its replicas start with, all at once, with their spares")
    most: int = Field(description="that they may grow to, with their spares")


class Cost(Document):
    """Dollars for instances alone; null where a type has no price."""

    per_hour: float | None = Field(
        description="all replicas at once, on their first choice; on the dearest of preferences"
    )
    attempt_ceiling: float | None = Field(description="one attempt of each, on its dearest type, to its time limit")
    ceiling: float | None = Field(description="the same with every rerun that the budgets allow")
    unpriced: tuple[str, ...] = Field(description="the instance types without a price")
    currency: Literal["USD"] = "USD"
    estimate: Literal[True] = True
    prices: PriceTable = Field(description="the prices that were used")


def quotas(ranks: Iterable[Spec]) -> list[Quota]:
    """What the run needs of each quota; `ranks` holds each rank's spec."""
    needed: Counter[str] = Counter()
    fallbacks: Counter[str] = Counter()
    for spec in ranks:
        if spec.backend is Backend.HYPERPOD:
            continue  # the cluster has its instances already
        usage = "spot training job usage" if spec.spot else "training job usage"
        first, *others = spec.instance_types
        # SageMaker needs quota for every type among preferences at once; Muster's fallbacks need it only when used.
        at_once = spec.instance_types if spec.instance_preferences is not None else (first,)
        count = spec.instance_count
        needed.update({f"{name} for {usage}": count for name in at_once})
        if spec.instance_preferences is None:
            fallbacks.update({f"{name} for {usage}": count for name in others})
        if spec.keep_alive_period_in_seconds:
            needed.update({f"{name} for training warm pool usage": count for name in at_once})
    return [
        Quota(name=name, instances=needed[name], for_fallbacks=fallbacks[name])
        for name in sorted({*needed, *fallbacks})
    ]


def cluster_shares(ranks: Iterable[Spec]) -> list[ClusterShare]:
    """What the run needs of clusters; `ranks` holds each rank's spec."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for spec in ranks:
        job = ClusterJob.of(spec)
        if job is None:
            continue
        key = job.cluster, job.queue or "", spec.instance_types[0]
        sums = found.setdefault(key, [0, 0])
        sums[0] += spec.instance_count + job.spares
        sums[1] += held_instances(spec)
    return [
        ClusterShare(cluster=cluster, queue=queue or None, instance_type=kind, instances=instances, most=most)
        for (cluster, queue, kind), (instances, most) in sorted(found.items())
    ]


def cost(ranks: Iterable[Spec], prices: PriceTable) -> Cost:
    """The estimate for the specs of all ranks. Spot counts as on-demand, which it never exceeds.

    The instances of a cluster count as if they were rented for the run: its share of what is paid for anyway.
    """
    specs = list(ranks)
    types = {name for spec in specs for name in spec.instance_types}
    used, usd_per_hour = prices.of(types), prices.usd_per_hour
    unpriced = tuple(sorted(types - usd_per_hour.keys()))
    if unpriced:
        return Cost(per_hour=None, attempt_ceiling=None, ceiling=None, unpriced=unpriced, prices=used)
    attempts = [_attempt_ceiling(spec, prices) for spec in specs]
    return Cost(
        per_hour=sum(usd_per_hour[_first_type(spec, prices)] * held_instances(spec) for spec in specs),
        attempt_ceiling=sum(attempts),
        ceiling=sum(ceiling * _billed_attempts(spec) for ceiling, spec in zip(attempts, specs, strict=True)),
        unpriced=(),
        prices=used,
    )


def _first_type(spec: Spec, prices: PriceTable) -> str:
    """The type of a first attempt; the dearest one where SageMaker chooses, which no request can foresee."""
    return prices.dearest(spec.instance_types) if spec.instance_preferences else spec.instance_types[0]


def _attempt_ceiling(spec: Spec, prices: PriceTable) -> float:
    usd_per_hour = prices.usd_per_hour
    # RetryStrategy's retries count against the runtime limit; a warm pool is billed after the job.
    seconds = spec.max_runtime_seconds + (spec.keep_alive_period_in_seconds or 0)
    return usd_per_hour[prices.dearest(spec.instance_types)] * held_instances(spec) * seconds / _HOUR


def _billed_attempts(spec: Spec) -> int:
    reruns = sum(
        spec.budget(failure_class).max_reruns for failure_class in DEFAULT_BUDGETS if failure_class not in _UNBILLED
    )
    if any(spec.watch.then(rule) == "restart" for rule in Rule):
        reruns += spec.watch.max_restarts
    # Every continuation has the full budgets again.
    return min(ATTEMPT_MAX, 1 + reruns) * (1 + (spec.continuation_policy.max if spec.continuation_policy else 0))
