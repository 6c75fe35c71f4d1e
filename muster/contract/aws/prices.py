"""The price of an instance per hour, from a table in the release: an estimate for other dates and regions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Self

from pydantic import Field

from muster.contract.aws.instance_types import USD_PER_HOUR
from muster.contract.document import Document

EGRESS_USD_PER_GB = 0.02
"""Amazon S3: data transfer out to another AWS region, for most pairs of regions (2026-11)."""


class PriceTable(Document):
    """On-demand prices of SageMaker training, in dollars per hour."""

    as_of: str = Field(description="the day, YYYY-MM-DD")
    region: str
    source: str
    usd_per_hour: dict[str, float] = Field(description="by instance type")

    def of(self, instance_types: Collection[str]) -> Self:
        """The table with only the rows of these types."""
        rows = {name: price for name, price in self.usd_per_hour.items() if name in instance_types}
        return self.model_copy(update={"usd_per_hour": rows})

    def with_prices(self, usd_per_hour: Mapping[str, float]) -> Self:
        """The table with these prices in place of its own."""
        return self.model_copy(update={"usd_per_hour": {**self.usd_per_hour, **usd_per_hour}}) if usd_per_hour else self

    def origin(self, region: str | None = None) -> str:
        """Whose prices these are, for a run in `region`: `on-demand prices of us-west-2 as of 2026-11-21`."""
        foreign = region is not None and region != self.region
        other = f"; the run is in {region}, where prices may differ" if foreign else ""
        return f"on-demand prices of {self.region} as of {self.as_of}{other}"

    def dearest(self, instance_types: Iterable[str]) -> str:
        """The type with the highest price: the bound while SageMaker has not chosen among several."""
        return max(instance_types, key=lambda name: self.usd_per_hour.get(name, 0.0))


# Not validated here, but by a test: most commands import this module, and use no price.
SHIPPED_PRICES = PriceTable.model_construct(
    as_of="2026-11-21",
    region="us-west-2",
    source="public copies of the AWS price list: SageMaker training, on demand",
    usd_per_hour=USD_PER_HOUR,
)
"""The table of this release."""
