"""Retry budgets: how many reruns a replica has for each failure class, and how long it waits before each."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.document import Document
from muster.contract.names import ATTEMPT_MAX

JITTER = 0.25
"""The largest part of a wait that is added to it."""


class Budget(Document):
    """How many attempts that end in one failure class are replaced, and after what wait."""

    max_reruns: int = Field(ge=0, le=ATTEMPT_MAX - 1, description="reruns for this class, per replica")
    delay_seconds: int = Field(default=0, ge=0, le=86_400, description="wait before the first of them")
    max_delay_seconds: int = Field(
        default=3_600, ge=0, le=86_400, description="each further wait is twice as long, up to this"
    )

    def delay(self, spent: int) -> int:
        """Seconds to wait before the rerun that follows `spent` earlier ones, without jitter."""
        if self.delay_seconds == 0:
            return 0
        # 2**17 * 1 s is past the largest bound; beyond it the exponent only costs time.
        return int(min(self.max_delay_seconds, self.delay_seconds * 2 ** min(spent, 17)))

    def longest_delays(self) -> Iterator[float]:
        """The wait before each rerun in seconds, with all the jitter that it may get."""
        for spent in range(self.max_reruns):
            yield (1 + JITTER) * self.delay(spent)


# Every class that can be rerun. What Muster itself has stopped is never rerun.
DEFAULT_BUDGETS: dict[FailureClass, Budget] = {
    FailureClass.CAPACITY: Budget(max_reruns=20, delay_seconds=60, max_delay_seconds=1_800),
    FailureClass.QUOTA: Budget(max_reruns=20, delay_seconds=120, max_delay_seconds=1_800),
    FailureClass.THROTTLE: Budget(max_reruns=20, delay_seconds=5, max_delay_seconds=300),
    FailureClass.SPOT: Budget(max_reruns=20, delay_seconds=60, max_delay_seconds=1_800),
    FailureClass.INFRASTRUCTURE: Budget(max_reruns=5),
    FailureClass.USER_CODE: Budget(max_reruns=0),
    FailureClass.TIMEOUT: Budget(max_reruns=0),
    FailureClass.STOPPED_BY_USER: Budget(max_reruns=0),
    FailureClass.INVALID_REQUEST: Budget(max_reruns=0),
    FailureClass.UNKNOWN: Budget(max_reruns=1, delay_seconds=60),
}
