"""The price of an instance per hour, from a table in the release: an estimate for other dates and regions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Self

from pydantic import Field

from muster.contract.document import Document


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
    usd_per_hour={
        "ml.c5.xlarge": 0.204,
        "ml.c5.2xlarge": 0.408,
        "ml.g4dn.xlarge": 0.7364,
        "ml.g4dn.2xlarge": 0.94,
        "ml.g4dn.4xlarge": 1.505,
        "ml.g4dn.8xlarge": 2.72,
        "ml.g4dn.12xlarge": 4.89,
        "ml.g4dn.16xlarge": 5.44,
        "ml.g5.xlarge": 1.408,
        "ml.g5.2xlarge": 1.515,
        "ml.g5.4xlarge": 2.03,
        "ml.g5.8xlarge": 3.06,
        "ml.g5.12xlarge": 7.09,
        "ml.g5.16xlarge": 5.12,
        "ml.g5.24xlarge": 10.18,
        "ml.g5.48xlarge": 20.36,
        "ml.g6.xlarge": 1.127,
        "ml.g6.2xlarge": 1.222,
        "ml.g6.4xlarge": 1.654,
        "ml.g6.8xlarge": 2.518,
        "ml.g6.12xlarge": 5.752,
        "ml.g6.16xlarge": 4.246,
        "ml.g6.24xlarge": 8.344,
        "ml.g6.48xlarge": 16.688,
        "ml.g6e.xlarge": 2.61,
        "ml.g6e.2xlarge": 2.8,
        "ml.g6e.4xlarge": 3.76,
        "ml.g6e.8xlarge": 5.66,
        "ml.g6e.12xlarge": 13.12,
        "ml.g6e.24xlarge": 18.83,
        "ml.g6e.48xlarge": 37.66,
        "ml.m5.large": 0.115,
        "ml.m5.xlarge": 0.23,
        "ml.m5.2xlarge": 0.461,
        "ml.m5.4xlarge": 0.922,
        "ml.p4d.24xlarge": 25.251286,
        "ml.p4de.24xlarge": 31.5641075,
        "ml.p5.48xlarge": 63.296,
    },
)
"""The table of this release."""
