"""Trying a call again for as long as the function has time, because AWS limits the rates of calls per account."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.errors import ConflictError
from muster.control.aws.aws_errors import is_transient
from muster.control.runtime import clock
from muster.control.runtime.time_budget import TimeBudget

R = TypeVar("R")

_LONGEST_PAUSE_SECONDS = 20.0


def patiently(call: Callable[[], R], budget: TimeBudget) -> R:
    """The answer of `call`. While it is throttled or fails in passing it is repeated, until the budget is spent.

    Each try of `call` is several of the SDK's (`clients.TRIES`). The pauses between the tries grow, with full jitter.

    Raises:
        ClientError, BotoCoreError, ConflictError: the error of the last try, or one that no other try would change.
    """
    longest = 1.0
    while True:
        try:
            return call()
        except (ClientError, BotoCoreError, ConflictError) as error:
            if not is_transient(error) or budget.is_spent:
                raise
        clock.sleep(min(random.uniform(0, longest), budget.remaining))  # noqa: S311 - jitter
        longest = min(2 * longest, _LONGEST_PAUSE_SECONDS)
