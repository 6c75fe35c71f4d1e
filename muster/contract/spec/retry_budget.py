"""Retry budgets: how many reruns a replica has for each failure class, and how long it waits before each.

Reruns take history of the replica's workflow: Step Functions ends an execution whose history is full.
"""

from __future__ import annotations

import math
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


HISTORY_MAX = 25_000  # Step Functions: history events of a Standard execution; children have their own
# The share for reruns. The rest is for re-arms, 6 events each, and for calls that are tried again. The workflow waits
# for at least 1/250 of its age, so a year of re-arms takes at most 9,000 events, however short the period is at first.
RERUN_EVENTS_MAX = 15_000
REARM_SECONDS = 15 * 60
"""How often the attempts of a run on clusters are re-armed: no event reports the end of a job there, and the replica's
notice of it may be lost. After ten days it is once an hour."""
PLACES_REARM_SECONDS = 5 * 60
"""The same of a run with places: events of a place that is cut off do not come, and its replicas go elsewhere."""
# A task that waits for its token has 6 events, a choice 2, a wait 2: one rerun, or one piece of a wait.
STEP_EVENTS = 10
# A Wait state cannot be interrupted, and stopping a run must not take as long as the longest rerun delay. So a long
# wait consists of pieces, and after each piece the replica checks whether its run is being stopped.
WAIT_PIECE_SECONDS = 600


def rerun_events(delay_seconds: float) -> int:
    """History events of one rerun after a wait."""
    return STEP_EVENTS * max(1, math.ceil(delay_seconds / WAIT_PIECE_SECONDS))
