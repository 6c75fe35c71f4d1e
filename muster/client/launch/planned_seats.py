"""What the fewest, the first and the most replicas of an elastic run need and cost. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from muster.client.launch.estimate import Cost, cost, quotas
from muster.contract.aws.prices import PriceTable
from muster.contract.document import Document
from muster.contract.run.run_cost import paid_for, seat_usd_per_hour
from muster.contract.spec.elastic import Elastic
from muster.contract.spec.spec import Spec


class SeatCost(Document):
    """A number of replicas."""

    replicas: int
    per_hour: float | None = Field(description="dollars, as `cost.per_hour`; null where a type has no price")


class SeatQuota(Document):
    """What these numbers need of a quota."""

    name: str = Field(description="as Service Quotas names it")
    least: int = Field(description="instances that the fewest replicas need")
    start: int
    most: int
    granted: float | None = Field(default=None, description="to the account; null where that was not asked")


class PlannedSeats(Document):
    """The fewest, the first and the most replicas of an elastic run."""

    least: SeatCost
    start: SeatCost
    most: SeatCost
    quotas: tuple[SeatQuota, ...]
    paid: int | None = Field(
        default=None,
        description="how many replicas `elastic.budget_usd_per_hour` pays for at the dearest types that they may have; "
        "null without it",
    )
    elastic: Elastic = Field(description="the spec's section")


def planned_seats(
    ranks: Sequence[Spec], elastic: Elastic, prices: PriceTable, granted: Mapping[str, float] | None
) -> PlannedSeats:
    """What an elastic run plans with; `ranks` holds each rank's spec, `granted` the account's quotas by name."""
    counts = elastic.min, elastic.start, len(ranks)
    least, start, most = (SeatCost(replicas=one, per_hour=cost(ranks[:one], prices).per_hour) for one in counts)
    needs = [{quota.name: quota.instances for quota in quotas(ranks[:one])} for one in counts]
    return PlannedSeats(
        least=least,
        start=start,
        most=most,
        quotas=tuple(
            SeatQuota(
                name=name,
                least=needs[0].get(name, 0),
                start=needs[1].get(name, 0),
                most=instances,
                granted=None if granted is None else granted.get(name),
            )
            for name, instances in needs[2].items()
        ),
        paid=None
        if elastic.budget_usd_per_hour is None
        else paid_for(map(seat_usd_per_hour, ranks), elastic.budget_usd_per_hour),
        elastic=elastic,
    )


def cost_of_seats(ranks: Sequence[Spec], start: int, prices: PriceTable) -> Cost:
    """The cost of an hour by the first replicas; the ceilings are those of all that there may be."""
    ceilings = cost(ranks, prices).model_dump(include={"attempt_ceiling", "ceiling"})
    return cost(ranks[:start], prices).model_copy(update=ceilings)


def quota_remarks(seats: PlannedSeats) -> Iterator[str]:
    """A remark on every quota that is too small, and on the budget, which says for how many replicas."""
    if seats.paid is not None and seats.paid < seats.start.replicas:
        pays = f"elastic.budget_usd_per_hour pays for {seats.paid:,} replicas of the dearest types that they may have"
        yield f"{pays}: the launch has {seats.start.replicas:,} all the same, and scaling adds none"
    for quota in seats.quotas:
        if quota.granted is None or quota.granted >= quota.most:
            continue
        granted = f"the account's quota {quota.name} is {quota.granted:g}"
        if quota.granted < quota.least:
            yield f"{granted}, and replicas.min alone needs {quota.least}: ask for more, or lower replicas.min"
        elif quota.granted < quota.start:
            yield f"{granted}: the launch needs {quota.start}, so seats wait for quota, and max would need {quota.most}"
        else:
            yield f"{granted}, which is enough for the launch; replicas.max needs {quota.most}"
