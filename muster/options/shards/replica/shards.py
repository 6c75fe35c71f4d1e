"""What this option offers a trainer."""

from __future__ import annotations

from muster.options.shards.replica.data_shards import DataShards
from muster.replica.context import OffersShards

OFFER = OffersShards(DataShards)
