"""What the processes of a replica agree on between two inner steps: whether the replica was asked to stop.

Each process receives SIGTERM at another moment. One that stopped training at once would leave the others in an inner
step that needs all of them. So they compare from time to time, and all stop after the same step.
"""

from __future__ import annotations

from muster.replica.parts.link import Link
from muster.replica.rounds.round_context import RoundContext

BEAT_SECONDS = 1.0


class Pulse:
    """Connects the processes about once a second, by the pace of the first one. One that is alone need not compare."""

    def __init__(self, link: Link, context: RoundContext) -> None:
        self._link, self._context = link, context
        self._is_over = False
        self._every, self._left = 1, 1
        self._began = context.clock.monotonic()
        if link.size > 1:
            context.stops_at_steps.set()

    @property
    def is_over(self) -> bool:
        """Whether the replica was asked to stop, as its processes have agreed."""
        return self._context.stop.is_set() if self._link.size == 1 else self._is_over

    def beat(self) -> None:
        """After an inner step; all processes call this. If the replica is to stop, its trainers are told now."""
        if self._link.size == 1 or self._is_over:
            return
        self._left -= 1
        if not self._left:
            self._compare()

    def ends(self) -> bool:
        """After the last step: `is_over` after a last comparison. From now on SIGTERM reaches the trainer directly."""
        if self._link.size > 1:
            if not self._is_over:
                self._compare()
            self._context.stops_at_steps.clear()
            if self._context.stop.is_set():
                self._context.trainer_stop.set()
        return self.is_over

    def _compare(self) -> None:
        now = self._context.clock.monotonic()
        answers = self._link.gather((self._context.stop.is_set(), now - self._began))
        # At most twice as many steps as before: the first ones may be quick.
        steps = int(self._every * BEAT_SECONDS / max(answers[0][1], 1e-6))
        self._every = max(1, min(2 * self._every, steps))
        self._left, self._began = self._every, now
        if any(asked for asked, _ in answers):
            self._is_over = True
            # SIGTERM may not have reached this process yet.
            self._context.stop.set()
            self._context.trainer_stop.set()
