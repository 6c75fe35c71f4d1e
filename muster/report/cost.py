"""The cost of an attempt so far: the seconds for which it had an instance, at the shipped price."""

from __future__ import annotations

from collections.abc import Mapping

from muster.contract.aws.job_status import BEFORE_INSTANCE
from muster.contract.run.attempt import Attempt
from muster.contract.timestamps import seconds_between

_HOUR = 3_600


def attempt_usd(attempt: Attempt, instances: int, now: str, usd_per_hour: Mapping[str, float]) -> float | None:
    """Dollars for `instances` of the attempt's type until its end or `now`; None where the type has no price.

    On-demand prices, so spot costs less. Without a history the whole attempt counts.
    """
    if not attempt.was_created or attempt.launched_at is None:
        return 0.0
    price = usd_per_hour.get(attempt.instance_type or "")
    if price is None:
        return None
    billed = [step.at for step in attempt.history if step.secondary not in BEFORE_INSTANCE]
    begin = billed[0] if billed else attempt.launched_at
    if not billed and attempt.secondary in BEFORE_INSTANCE:
        return 0.0
    return max(0.0, seconds_between(begin, attempt.ended_at or now)) * instances * price / _HOUR
