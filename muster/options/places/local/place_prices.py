"""The AWS Price List API, as far as a client looks at it: what an hour of training costs on demand in a region.

Those of Muster's own table, in every region, unless the fault `price` says another one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from muster.contract.aws.instance_types import USD_PER_HOUR
from muster.local.faults import Price
from muster.local.sagemaker.answer_pages import page
from muster.local.sagemaker.service_errors import Caller, ServiceError
from muster.local.service.fault_book import FaultBook
from muster.options.places.local.atlas import Atlas

TARGET = "AWSPriceListService.GetProducts"
_ACTION = "pricing:GetProducts"
_SERVICE = "AmazonSageMaker"
_PAGE = 100  # GetProducts: MaxResults


class PriceList:
    """The prices of a cloud."""

    def __init__(self, atlas: Atlas, faults: FaultBook) -> None:
        self._atlas = atlas
        self._faults = faults

    def get_products(self, request: Mapping[str, Any], caller: Caller) -> Mapping[str, object]:
        """The answer to GetProducts.

        Raises:
            ServiceError: another service's prices, a filter that the embedded cloud has not, or no right to ask.
        """
        caller.authorise(_ACTION, "*", {})
        filters = request.get("Filters", [])
        wanted = {each["Field"]: each["Value"] for each in filters if each["Type"] == "TERM_MATCH"}
        if request.get("ServiceCode") != _SERVICE or len(wanted) != len(filters):
            code, message = "InvalidParameterException", f"The embedded cloud has prices of {_SERVICE}, by TERM_MATCH."
            raise ServiceError(code, message)
        matching = (one for one in self._offers() if wanted.items() <= one["product"]["attributes"].items())
        rows = [json.dumps(offer) for offer in matching]
        return {"FormatVersion": "aws_v1", **page("PriceList", rows, request, _PAGE, "InvalidNextTokenException")}

    def _offers(self) -> Iterator[dict[str, Any]]:
        for region in {place.account.region for place in self._atlas.all}:
            names = [place.name for place in self._atlas.in_region(region)]
            changed = {
                price.instance_type: price.usd_per_hour for name in names for price in self._faults.at(name).all(Price)
            }
            for instance_type, usd in {**USD_PER_HOUR, **changed}.items():
                yield _offer(region, instance_type, usd)


def _offer(region: str, instance_type: str, usd: float) -> dict[str, Any]:
    sku = hashlib.sha256(f"{region}/{instance_type}".encode()).hexdigest()[:16].upper()
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}, "description": f"{instance_type} for training"}
    return {
        "product": {
            "productFamily": "ML Instance",
            "sku": sku,
            "attributes": {
                "servicecode": _SERVICE,
                "regionCode": region,
                "instanceName": instance_type,
                "usagetype": f"{region}-Train:{instance_type}",
                "component": "Training",
                "productFamily": "ML Instance",
            },
        },
        "serviceCode": _SERVICE,
        "terms": {"OnDemand": {f"{sku}.ODT": {"priceDimensions": {f"{sku}.ODT.HRS": dimension}}}},
    }
