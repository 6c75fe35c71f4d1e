"""What a run has spent so far: on traffic between places, by its last commit, and on instances, by marks.

An attempt has two marks, which hold all their data in their keys. Listing the marks gives the whole sum: a few requests
cover thousands of replicas, and no two functions write the same object. Prices are the spec's, or else the on-demand
prices of the shipped table; billable seconds are those that SageMaker reports (for spot they are fewer than the seconds
that passed, so the on-demand price applies).

The instances of a cluster are paid for whether a job runs on them or not. A run counts its share of them: the hours for
which its jobs held them, at the on-demand price of the same type in a training job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from muster.contract.aws.job_status import BEFORE_INSTANCE
from muster.contract.aws.prices import EGRESS_USD_PER_GB, SHIPPED_PRICES, PriceTable
from muster.contract.backend import Backend
from muster.contract.document import Document
from muster.contract.layout import RunLayout
from muster.contract.run.attempt import Attempt
from muster.contract.timestamps import seconds_between

if TYPE_CHECKING:
    from muster.contract.run.plan import Plan
    from muster.contract.spec.spec import Spec

_HOUR = 3_600
_ENDS = ("Completed", "Failed", "Stopped")
_MICRO = 1_000_000
_MARK = re.compile(
    r"(?P<rank>\d{1,4})-(?P<attempt>\d{1,3})-"
    r"(?:on-(?:(?P<count>\d{1,3})-)?(?P<type>ml\.[a-z0-9.-]+)|cost-(?P<micro>\d{1,15}))"
)


class Rented(NamedTuple):
    """The instances of an attempt."""

    instance_type: str
    instances: int = 1


def launch_mark(layout: RunLayout, rank: int, attempt: int, rented: Rented) -> str:
    """The key that records that an attempt has these instances since the object was created."""
    several = f"{rented.instances}-" if rented.instances > 1 else ""
    return f"{layout.spent}{rank}-{attempt}-on-{several}{rented.instance_type}"


def end_mark(layout: RunLayout, rank: int, attempt: int, usd: float) -> str:
    """The key that records what an ended attempt has cost."""
    return f"{layout.spent}{rank}-{attempt}-cost-{round(usd * _MICRO)}"


def reached_mark(layout: RunLayout) -> str:
    """The key that records that a replica was lost because the ceiling was reached."""
    return f"{layout.spent}reached"


def billed_usd(rented: Rented, seconds: float, prices: PriceTable = SHIPPED_PRICES) -> float:
    """Dollars for so many billable seconds of these instances; 0 for a type without a known price.

    SageMaker's BillableTimeInSeconds is that of one instance: DescribeTrainingJob says to multiply it.
    """
    return prices.usd_per_hour.get(rented.instance_type, 0.0) * rented.instances * max(0.0, seconds) / _HOUR


def spent_usd(
    marks: Iterable[tuple[str, datetime]],
    now: datetime,
    prices: PriceTable = SHIPPED_PRICES,
    so_far: Mapping[tuple[int, int], float] | None = None,
) -> float:
    """Dollars spent until `now`, from the marks' keys and the times at which they were created.

    `so_far`: of running attempts, by rank and number, of which more is known than when they were launched.
    """
    launches: dict[tuple[int, int], list[tuple[datetime, Rented]]] = {}
    ended: dict[tuple[int, int], float] = {}
    for key, made_at in marks:
        match = _MARK.fullmatch(key.rpartition("/")[2])
        if match is None:
            continue
        attempt = (int(match["rank"]), int(match["attempt"]))
        if match["type"] is not None:
            rented = Rented(match["type"], int(match["count"] or 1))
            launches.setdefault(attempt, []).append((made_at, rented))
        else:
            # Two reports of one end may differ by a second.
            ended[attempt] = max(int(match["micro"]) / _MICRO, ended.get(attempt, 0.0))
    # A second launch mark has the type that SageMaker has chosen meanwhile; the first one has the time of the launch.
    running = {
        attempt: billed_usd(_chosen(marks_of, prices), (now - min(marks_of)[0]).total_seconds(), prices)
        for attempt, marks_of in launches.items()
    }
    return sum((running | dict(so_far or {}) | ended).values())


def _chosen(marks: Iterable[tuple[datetime, Rented]], prices: PriceTable) -> Rented:
    """The instances of the last mark. S3's times are whole seconds; in the same one, the dearer type was the bound."""
    return max(marks, key=lambda mark: (mark[0], -billed_usd(mark[1], _HOUR, prices)))[1]


def usd_so_far(attempt: Attempt, instances: int, now: str, usd_per_hour: Mapping[str, float]) -> float | None:
    """Dollars for `instances` of the attempt's type until its end or `now`; None where the type has no price.

    An estimate from the times at which it had an instance, at on-demand prices, so spot costs less. Without a history
    the whole attempt counts. On a cluster the number of instances may change.
    """
    if not attempt.was_created or attempt.launched_at is None:
        return 0.0
    if not attempt.status and not attempt.history and attempt.ended_at is None:
        # Its request has perhaps not been accepted yet.
        return 0.0
    price = usd_per_hour.get(attempt.instance_type or "")
    if price is None:
        return None
    if attempt.cluster is not None:
        return instance_seconds(attempt, instances, now) * price / _HOUR
    billed = [step.at for step in attempt.history if step.secondary not in BEFORE_INSTANCE]
    begin = billed[0] if billed else attempt.launched_at
    if not billed and attempt.secondary in BEFORE_INSTANCE:
        return 0.0
    return max(0.0, seconds_between(begin, attempt.ended_at or now)) * instances * price / _HOUR


def egress_usd(plan: Plan, last_round: int, crossed_bytes: float | None) -> float | None:
    """Dollars for what its rounds have moved between the places of a run; None at one place, or before the first one.

    `crossed_bytes` is what the last commit says, perhaps one of the run before in the lineage.
    """
    before = 0 if plan.lineage is None else plan.lineage.rounds_before
    if crossed_bytes is None or last_round <= before:
        return None
    return round(crossed_bytes / 1e9 * EGRESS_USD_PER_GB, 6)


def seat_usd_per_hour(spec: Spec, instance_type: str | None = None) -> float:
    """Dollars for an hour of a replica of this type, or of the dearest that it may have; `spec` is its rank's."""
    kind = instance_type or spec.prices.dearest(spec.instance_types)
    return billed_usd(Rented(kind, held_instances(spec)), _HOUR, spec.prices)


def paid_for(usd_per_hour: Iterable[float], budget: float) -> int:
    """How many of these replicas, in their order, so many dollars an hour pay for."""
    return sum(total <= budget for total in accumulate(usd_per_hour))


def held_instances(spec: Spec) -> int:
    """The most instances that an attempt may hold at once, the spares on a cluster included; `spec` is its rank's."""
    if spec.backend is not Backend.HYPERPOD or spec.hyperpod is None:
        return spec.instance_count
    return most_instances(spec) + spec.hyperpod.spares


def most_instances(spec: Spec) -> int:
    """The most instances on which an attempt may train."""
    elastic = spec.hyperpod.elastic if spec.backend is Backend.HYPERPOD and spec.hyperpod else None
    return max(spec.instance_count, elastic.max_instances) if elastic else spec.instance_count


def instance_seconds(attempt: Attempt, instances: int, now: str) -> float:
    """Seconds of all instances that a job on a cluster has held until its end or `now`, its spares included.

    It starts with `instances` of them; its history says when the operator has changed their number. A job that waits
    for quota, or that Kueue has suspended, holds none.
    """
    if not attempt.was_created or attempt.launched_at is None:
        return 0.0
    spares = attempt.cluster.spares if attempt.cluster else 0
    held, count = 0.0, instances
    secondary = "Training" if not attempt.history and attempt.secondary not in BEFORE_INSTANCE else "Starting"
    since = attempt.launched_at
    for step in attempt.history:
        if secondary not in BEFORE_INSTANCE:
            held += max(0.0, seconds_between(since, step.at)) * (count + spares)
        since, secondary = max(since, step.at), step.secondary
        count = count if step.instances is None else step.instances
    if secondary not in {*BEFORE_INSTANCE, *_ENDS}:
        held += max(0.0, seconds_between(since, attempt.ended_at or now)) * (count + spares)
    return held


def held_seconds(attempts: Iterable[Attempt], spec: Spec, until: str) -> float | None:
    """For how long a replica's jobs on clusters have held instances; None where it has had none there."""
    on_clusters = [attempt for attempt in attempts if attempt.cluster is not None]
    if not on_clusters:
        return None
    return round(sum(instance_seconds(attempt, spec.instance_count, until) for attempt in on_clusters), 3)


def usd_of_ended(attempts: Iterable[Attempt], spec: Spec, settled_at: str) -> float | None:
    """Dollars for all attempts of a replica with this spec; None where a type has no price."""
    costs = usd_of_each(attempts, spec, settled_at)
    known = [usd for usd in costs if usd is not None]
    return round(sum(known), 6) if len(known) == len(costs) else None


def usd_of_each(attempts: Iterable[Attempt], spec: Spec, now: str) -> list[float | None]:
    """Dollars for each attempt of a replica with this spec, at the spec's prices; None where its type has no price.

    By SageMaker's billable seconds where they are known, otherwise an estimate from the times of the attempt. On a
    cluster it is the share of instances that are paid for anyway. Where the type is not known it counts as the dearest
    of those that it may have had.
    """
    prices = spec.prices
    bound = prices.dearest(spec.instance_types)
    return [_usd(one, Rented(one.instance_type or bound, spec.instance_count), now, prices) for one in attempts]


def _usd(attempt: Attempt, rented: Rented, now: str, prices: PriceTable) -> float | None:
    if attempt.billable_seconds is not None and rented.instance_type in prices.usd_per_hour:
        return billed_usd(rented, attempt.billable_seconds, prices)
    typed = attempt.model_copy(update={"instance_type": rented.instance_type})
    return usd_so_far(typed, rented.instances, now, prices.usd_per_hour)


class SpotSaving(Document):
    """What managed spot has saved: SageMaker bills fewer seconds than it trains."""

    training_seconds: int = Field(description="of all instances of all attempts whose bill is known")
    billable_seconds: int
    usd: float | None = Field(description="at on-demand prices; none where a type has no price")

    @property
    def share(self) -> float:
        """The part of the training time that is not billed, as DescribeTrainingJob defines it."""
        return 1 - self.billable_seconds / self.training_seconds


def saving(attempts: Iterable[Attempt], usd_per_hour: Mapping[str, float]) -> SpotSaving | None:
    """What spot has saved in `attempts`; None where nothing, or the bills are not known."""
    trained = billed = 0
    usd: float | None = 0.0
    for attempt in attempts:
        details = attempt.details
        if details is None or not details.training_seconds or attempt.billable_seconds is None:
            continue
        instances = details.instances or 1
        trained += details.training_seconds * instances
        billed += attempt.billable_seconds * instances
        price = usd_per_hour.get(attempt.instance_type or "")
        unpaid = (details.training_seconds - attempt.billable_seconds) * instances
        usd = None if usd is None or price is None else usd + price * unpaid / _HOUR
    return SpotSaving(training_seconds=trained, billable_seconds=billed, usd=usd) if billed < trained else None
