"""How many random schedules and examples the tests try: few before a merge, all of them before a release."""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def seeds_factor() -> int:
    """How many times as many are wanted as before a merge (MUSTER_SEEDS_FACTOR); 1 if nobody says."""
    return int(os.environ.get("MUSTER_SEEDS_FACTOR", "1"))


def part_of(items: Sequence[T], divisor: int = 3) -> Sequence[T]:
    """One of `divisor` items, evenly; all of them where the factor is as large."""
    return items[:: max(1, divisor // seeds_factor())]
