"""What an hour of an instance costs now and here, by the AWS Price List API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
from botocore.config import Config

from muster.client.aws.error_translation import translated
from muster.contract.aws.prices import PriceTable

# The API has few endpoints, each of which knows the prices of all regions.
_ENDPOINT_REGION = "us-east-1"
_CONFIG = Config(connect_timeout=3, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 2})


def listed_prices(session: boto3.Session, region: str, instance_types: Iterable[str]) -> PriceTable:
    """On-demand prices of SageMaker training in `region`; types without one are left out.

    Raises:
        ClientError: the API cannot be reached or refuses (`pricing:GetProducts`).
    """
    found: dict[str, float] = {}
    with translated():
        client = session.client("pricing", region_name=_ENDPOINT_REGION, config=_CONFIG)
        for name in sorted(set(instance_types)):
            filters = {"productFamily": "ML Instance", "regionCode": region, "instanceName": name}
            pages = client.get_paginator("get_products").paginate(
                ServiceCode="AmazonSageMaker",
                Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()],
            )
            prices = [
                price for page in pages for item in page["PriceList"] for price in _training(json.loads(item), name)
            ]
            if prices:
                found[name] = max(prices)
    return PriceTable(f"{datetime.now(UTC):%Y-%m-%d}", region, "AWS Price List API", found)


def _training(offer: dict[str, Any], instance_type: str) -> Iterator[float]:
    """The prices of an offer if it is for training: the same instance has others for notebooks and endpoints."""
    if not offer["product"]["attributes"].get("usagetype", "").endswith(f"Train:{instance_type}"):
        return
    for term in offer.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", 0))
            if dimension["unit"] == "Hrs" and price > 0:
                yield price
