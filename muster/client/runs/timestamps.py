"""Times as documents hold them."""

from __future__ import annotations

from datetime import datetime

from muster.contract import timestamps


def utc_text(at: datetime) -> timestamps.Timestamp:
    """ISO 8601 in UTC, to the millisecond."""
    return timestamps.text(at)
