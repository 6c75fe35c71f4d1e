"""What an hour of an instance costs today in a region, from the AWS Price List API."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime

from botocore.config import Config

from muster.client.aws.error_translation import translated
from muster.client.aws.light_session import AnySession
from muster.client.client_errors import ClientError
from muster.contract.aws.price_offers import ENDPOINT_REGION, SERVICE, filters_of, training_prices
from muster.contract.aws.prices import PriceTable

# Credentials are of one partition: those of aws-us-gov are refused at this endpoint, and the API of aws-cn lists yuan.
_PARTITION = "aws"
_CONFIG = Config(connect_timeout=3, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 2})


class PricesUnknownError(ClientError):
    """The partition has no price list in dollars."""

    def __init__(self, partition: str) -> None:
        super().__init__(f"accounts of {partition} cannot ask for prices in dollars")


def listed_prices(session: AnySession, region: str, instance_types: Iterable[str]) -> PriceTable:
    """On-demand prices of SageMaker training in `region`; types without one are left out.

    Raises:
        PricesUnknownError: `region` is of another partition than `aws`; nothing was asked.
        ClientError: the API cannot be reached or refuses (`pricing:GetProducts`).
    """
    partition = session.get_partition_for_region(region)
    if partition != _PARTITION:
        raise PricesUnknownError(partition)
    found: dict[str, float] = {}
    with translated():
        client = session.client("pricing", region_name=ENDPOINT_REGION, config=_CONFIG)
        for name in sorted(set(instance_types)):
            pages = client.get_paginator("get_products").paginate(ServiceCode=SERVICE, Filters=filters_of(region, name))
            prices = [
                price
                for page in pages
                for item in page["PriceList"]
                for price in training_prices(json.loads(item), name)
            ]
            if prices:
                found[name] = max(prices)
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    return PriceTable(as_of=today, region=region, source="AWS Price List API", usd_per_hour=found)
