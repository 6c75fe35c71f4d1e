"""What a run needs of each place, and what it sends between them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pydantic import Field

from muster.client.launch.estimate import quotas
from muster.contract.aws.prices import EGRESS_USD_PER_GB, PriceTable
from muster.contract.document import Document
from muster.contract.spec.places import HOME, Places, Rung
from muster.contract.spec.spec import Spec
from muster.contract.training.ranks import show_ranks


class KnownPlace(Document):
    """A place of the stack, as far as this caller can see it."""

    region: str
    account: str
    prices: PriceTable | None = Field(default=None, description="none where they were not asked for")
    granted: dict[str, float] | None = Field(default=None, description="quotas by name; none where they are not known")


class PlaceQuota(Document):
    """A quota of a place."""

    name: str = Field(description="as Service Quotas names it")
    instances: int = Field(description="that the run needs there, if all its replicas that may be there are")
    granted: float | None = Field(default=None, description="to the account there; none where that is not known")


class PlannedPlace(Document):
    """One place of a run."""

    place: str
    region: str | None = Field(default=None, description="none where no stack was asked")
    account: str | None = None
    ranks: str | None = Field(default=None, description="of fixed shares: who is there")
    rungs: tuple[int, ...] = Field(default=(), description="of a ladder: those of this place")
    quotas: tuple[PlaceQuota, ...]
    usd_per_hour: dict[str, float] = Field(description="of an instance there, on demand, by type")


class PlannedPlaces(Document):
    """The places of a run, and what a round sends between them."""

    places: tuple[PlannedPlace, ...]
    outposts: int = Field(description="places beside home")
    egress_usd_per_gb: float = Field(
        description="for a gigabyte of a round's mean, as the codec for the far way has it: what all places send"
    )
    remarks: tuple[str, ...] = ()


def planned_places(spec: Spec, known: Mapping[str, KnownPlace], prices: PriceTable) -> PlannedPlaces | None:
    """What the planned `spec` needs of its places; None where it has none. `prices` are those of home."""
    places = spec.places
    if places is None:
        return None
    outposts = [name for name in places.named if name != HOME]
    return PlannedPlaces(
        places=tuple(_planned(spec, name, known.get(name), prices) for name in places.named),
        outposts=len(outposts),
        # Each sends the sum of its replicas to the home bucket, and reads the mean from there.
        egress_usd_per_gb=round(2 * sum(_is_far(name, known) for name in outposts) * EGRESS_USD_PER_GB, 4),
        remarks=tuple(_remarks(spec, outposts)),
    )


def _is_far(name: str, known: Mapping[str, KnownPlace]) -> bool:
    """Whether a place is in another region than home, or may be: within a region traffic is free between accounts."""
    home, there = known.get(HOME), known.get(name)
    return home is None or there is None or home.region != there.region


def _planned(spec: Spec, name: str, known: KnownPlace | None, home: PriceTable) -> PlannedPlace:
    places = spec.places or Places()
    rungs = tuple(number for number, rung in enumerate(places.ladder) if rung.place == name)
    ranks = places.ranks_in(name)
    specs = [spec.of_rank(rank).model_copy(update={"places": None}) for rank in ranks]
    specs += _on_rungs(spec, [places.ladder[number] for number in rungs])
    granted = None if known is None else known.granted
    table = home if name == HOME else None if known is None else known.prices
    types = {kind for one in specs for kind in one.instance_types}
    return PlannedPlace(
        place=name,
        region=None if known is None else known.region,
        account=None if known is None else known.account,
        ranks=show_ranks(ranks) if ranks else None,
        rungs=rungs,
        quotas=tuple(
            PlaceQuota(
                name=quota.name,
                instances=quota.instances,
                granted=None if granted is None else granted.get(quota.name),
            )
            for quota in quotas(specs)
        ),
        usd_per_hour={} if table is None else dict(sorted(table.of(types).usd_per_hour.items())),
    )


def _on_rungs(spec: Spec, rungs: Sequence[Rung]) -> Iterator[Spec]:
    """The specs of the largest replicas that may be on rungs of one place at once; rungs may share a quota."""
    ranks = (spec.of_rank(rank) for rank in range(spec.replicas))
    largest = sorted(ranks, key=lambda one: one.instance_count, reverse=True)
    room = Counter[tuple[str | None, bool]]()
    for rung in rungs:
        room[rung.instance_type or spec.instance_type, rung.is_spot(spec.spot)] += rung.at_most or spec.replicas
    for (instance_type, spot), most in room.items():
        update = {"places": None, "instance_type": instance_type, "spot": spot}
        yield from (one.model_copy(update=update) for one in largest[:most])


def _remarks(spec: Spec, outposts: Sequence[str]) -> Iterator[str]:
    read = [
        f"{channel.channel_name} ({source.s3_uri})"
        for channel in spec.input_data_config
        if (source := channel.data_source.s3_data_source) is not None
    ]
    if outposts and read:
        yield (
            f"jobs in {', '.join(outposts)} read the data of {', '.join(read)} from where it lies: SageMaker reads "
            f"buckets of the job's own region alone, and a copy costs ${EGRESS_USD_PER_GB:.2f} a GB once"
        )
    for number, rung in enumerate(spec.places.ladder if spec.places else ()):
        other = "its training plan" if rung.training_plan else "spot" if rung.is_spot(spec.spot) else None
        if rung.price_cap is not None and other is not None:
            yield (
                f"the price_cap of rung {number} ({rung.place}) is compared with the price on demand that AWS lists, "
                f"and not with that of {other}, which is not known"
            )
