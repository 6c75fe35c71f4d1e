"""What an hour of an instance costs, by the table that is shipped: dated, of one region, an estimate elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class PriceTable:
    """On-demand prices of SageMaker training, in dollars per hour."""

    as_of: str
    region: str
    source: str
    usd_per_hour: dict[str, float]


@cache
def shipped_prices() -> PriceTable:
    """The table of this release."""
    text = resources.files("muster.client").joinpath("prices.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(text)
    return PriceTable(**table)
