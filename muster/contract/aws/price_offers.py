"""The offers of the AWS Price List API for SageMaker training. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

SERVICE = "AmazonSageMaker"
ENDPOINT_REGION = "us-east-1"
"""The API has few endpoints; each knows the prices of all regions."""


class _Dimension(TypedDict):
    unit: str
    pricePerUnit: dict[str, str]


class _Term(TypedDict):
    priceDimensions: dict[str, _Dimension]


class _Product(TypedDict):
    attributes: dict[str, str]


class Offer(TypedDict):
    """The parts that are read of an offer of GetProducts."""

    product: _Product
    terms: dict[str, dict[str, _Term]]


def filters_of(region: str, instance_type: str) -> list[Any]:
    """The filters of GetProducts for an instance type in a region."""
    filters = {"productFamily": "ML Instance", "regionCode": region, "instanceName": instance_type}
    return [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()]


def training_prices(offer: Offer, instance_type: str) -> Iterator[float]:
    """The prices of an offer if it is for training: notebooks and endpoints have other prices."""
    if not offer["product"]["attributes"].get("usagetype", "").endswith(f"Train:{instance_type}"):
        return
    for term in offer["terms"].get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", 0))
            if dimension["unit"] == "Hrs" and price > 0:
                yield price
