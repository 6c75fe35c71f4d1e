"""How much history a replica's workflow may use: Step Functions ends an execution whose history is full."""

from __future__ import annotations

import math

HISTORY_MAX = 25_000  # Step Functions: history events of a Standard execution; children have their own
# The share for reruns. The rest is for re-arms, 6 events each, and for calls that are tried again. The workflow waits
# for at least 1/250 of its age, so a year of re-arms takes at most 9,000 events, however short the period is at first.
RERUN_EVENTS_MAX = 15_000
REARM_SECONDS = 15 * 60
"""How often the attempts of a run on clusters are re-armed: no event reports the end of a job there, and the replica's
notice of it may be lost. After ten days it is once an hour."""
# A task that waits for its token has 6 events, a choice 2, a wait 2: one rerun, or one piece of a wait.
STEP_EVENTS = 10
# A Wait state cannot be interrupted, and stopping a run must not take as long as the longest rerun delay. So a long
# wait consists of pieces, and after each piece the replica checks whether its run is being stopped.
WAIT_PIECE_SECONDS = 600


def rerun_events(delay_seconds: float) -> int:
    """History events of one rerun after a wait."""
    return STEP_EVENTS * max(1, math.ceil(delay_seconds / WAIT_PIECE_SECONDS))
