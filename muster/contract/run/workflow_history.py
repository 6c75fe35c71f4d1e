"""How much history a replica's workflow may take: an execution that fills its history is ended by Step Functions."""

from __future__ import annotations

import math

HISTORY_MAX = 25_000  # Step Functions: history events of a Standard execution; children have their own
# Of them so many for reruns. The rest is for re-arms, 6 each: a year of them at the default period takes 8,760.
RERUN_EVENTS_MAX = 15_000
# A task that waits for its token has 6 events, a choice 2, a wait 2: one rerun, or one piece of a wait.
STEP_EVENTS = 10
# Nothing can wake a Wait state, and a run that is being stopped must not outlast the rerun delay of its most patient
# replica: so a longer wait is served in pieces, after each of which the replica looks whether it is to go on.
WAIT_PIECE_SECONDS = 600


def rerun_events(delay_seconds: float) -> int:
    """History events of one rerun after a wait."""
    return STEP_EVENTS * max(1, math.ceil(delay_seconds / WAIT_PIECE_SECONDS))
