"""What a run has spent on instances so far: two marks for each attempt, which hold all their data in their keys.

Listing the marks gives the whole sum: a few requests cover thousands of replicas, and no two functions write the same
object. Prices are the on-demand prices of the shipped table; billable seconds are those that SageMaker reports (for
spot they are fewer than the seconds that passed, so the on-demand price applies).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.layout import RunLayout

_HOUR = 3_600
_MICRO = 1_000_000
_MARK = re.compile(r"(?P<rank>\d{1,4})-(?P<attempt>\d{1,3})-(?:on-(?P<type>ml\.[a-z0-9.-]+)|cost-(?P<micro>\d{1,15}))")


def launch_mark(layout: RunLayout, rank: int, attempt: int, instance_type: str) -> str:
    """The key that records that an attempt has an instance of this type since the object was created."""
    return f"{layout.spent}{rank}-{attempt}-on-{instance_type}"


def end_mark(layout: RunLayout, rank: int, attempt: int, usd: float) -> str:
    """The key that records what an ended attempt has cost."""
    return f"{layout.spent}{rank}-{attempt}-cost-{round(usd * _MICRO)}"


def attempt_usd(instance_type: str, seconds: float) -> float:
    """Dollars for so many billable seconds of a type; 0 for a type without a known price."""
    return SHIPPED_PRICES.usd_per_hour.get(instance_type, 0.0) * max(0.0, seconds) / _HOUR


def spent_usd(marks: Iterable[tuple[str, datetime]], now: datetime) -> float:
    """Dollars spent until `now`, from the marks' keys and the times at which they were created."""
    running: dict[tuple[str, str], float] = {}
    ended: dict[tuple[str, str], float] = {}
    for key, made_at in marks:
        match = _MARK.fullmatch(key.rpartition("/")[2])
        if match is None:
            continue
        attempt = (match["rank"], match["attempt"])
        if match["type"] is not None:
            running[attempt] = attempt_usd(match["type"], (now - made_at).total_seconds())
        else:
            # Two reports of one end may differ by a second.
            ended[attempt] = max(int(match["micro"]) / _MICRO, ended.get(attempt, 0.0))
    return sum((running | ended).values())
