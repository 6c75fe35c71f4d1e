"""What AWS says of the places of a stack to this caller, and the request of a first attempt there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from muster.client.aws.price_list import listed_prices
from muster.client.aws.service_quotas import granted_quotas
from muster.client.client_errors import ClientError
from muster.client.launch.planned_places import KnownPlace
from muster.contract import timestamps
from muster.contract.run.attempt import Attempt
from muster.contract.run.plan import Plan
from muster.contract.spec.places import HOME, Places
from muster.contract.spec.spec import Spec
from muster.options.places.contract.ladder import Facts, RungState, share, where
from muster.options.places.contract.outposts import PARTITION, DeployedPlaces, Outpost, Place, outpost
from muster.options.places.contract.placed_request import placed_request

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud

_BEGIN = timestamps.from_epoch_milliseconds(0)


def known_places(cloud: Cloud, spec: Spec) -> dict[str, KnownPlace]:
    """The places of the stack that `spec` names, with prices, and with quotas where the caller's account is theirs.

    Of home, which all of them exchange sums with, at least where it is.
    """
    stack = cloud.stack
    if not stack.places:
        return {}
    deployed = DeployedPlaces.from_json(stack.places, f"the output Places of {stack.name}")
    named = [] if spec.places is None else spec.places.named
    types = {kind for rank in range(spec.replicas) for kind in spec.of_rank(rank).instance_types}
    found = (Place(name=HOME, region=cloud.session.region_name, account=stack.account), *deployed.places)
    home = KnownPlace(region=found[0].region, account=found[0].account)
    return {HOME: home} | {one.name: _seen(cloud, one.region, one.account, types) for one in found if one.name in named}


def _seen(cloud: Cloud, region: str, account: str, types: set[str]) -> KnownPlace:
    known = KnownPlace(region=region, account=account)
    try:
        known = known.model_copy(update={"prices": listed_prices(cloud.session, region, types)})
        if account == cloud.stack.account:
            known = known.model_copy(update={"granted": granted_quotas(cloud.session, region)})
    except ClientError:
        pass  # what cannot be asked is not known
    return known


def first_request(plan: Plan, rank: int, known: Mapping[str, KnownPlace]) -> dict[str, JsonValue]:
    """What the first attempt of a rank sends."""
    spec, places = plan.spec.of_rank(rank), plan.spec.places or Places()
    if places.shares:
        chosen = share(places, rank, spot=spec.spot)
        kind = spec.instance_type
    else:
        states = [RungState() for _ in places.ladder]
        chosen = where(places, (), Facts(now=_BEGIN, rungs=states, waiting_before=rank, spot=spec.spot))
        kind = (places.ladder[chosen.rung or 0].instance_type if places.ladder else None) or spec.instance_type
    first = Attempt(attempt=1, job="", instance_type=kind, where=chosen)
    at = None if chosen.is_home else _outpost(plan, chosen.place, known.get(chosen.place))
    return placed_request(plan, rank, [first], at)


def _outpost(plan: Plan, name: str, known: KnownPlace | None) -> Outpost:
    prefix = plan.place.job_prefix
    if known is None:
        return Outpost(name, f"<region of {name}>", "", f"<bucket of {name}>", "", f"<role of {name}>", "")
    return outpost("<stack>", prefix, PARTITION, Place(name=name, region=known.region, account=known.account))
