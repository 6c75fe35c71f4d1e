"""Places as a service of the embedded cloud. What it needs is imported when it is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.local.service.option_services import Hosted, OptionService, Right, ServiceParts
from muster.options.places.local.place_settings import PlacesSettings

if TYPE_CHECKING:
    from pydantic import BaseModel

    from muster.local.counted_calls import Call
    from muster.local.ministack.host import Account
    from muster.local.service.http_request import EndpointRequest


def _adapt(_account: Account) -> None:
    """Nothing: MiniStack has borders only in a cloud with places."""


async def _rights(_request: EndpointRequest, _call: Call, _account: Account) -> Sequence[Right]:
    return ()


def _host(parts: ServiceParts, settings: BaseModel) -> Hosted:
    from muster.options.places.local.hosted_places import HostedPlaces  # noqa: PLC0415

    return HostedPlaces(parts, PlacesSettings.model_validate(settings.model_dump())).start()


OFFER = OptionService(
    name="places",
    help="With further regions and accounts.",
    settings=PlacesSettings,
    options={"add": "place"},
    adapt=_adapt,
    rights=_rights,
    host=_host,
)
