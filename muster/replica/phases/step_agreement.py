"""What the processes of a replica agree on between two inner steps: whether to stop, and whether to give early.

Each process receives SIGTERM at another time, and an exchange that runs beside the training notices in each process at
another time that the run has ended. A process that stopped training at once would leave the others in an inner step
that needs all of them. So they compare from time to time, and all do the same after the same step.
"""

from __future__ import annotations

from collections.abc import Callable

from muster.replica.parts.link import Link
from muster.replica.rounds.round_context import RoundContext

BEAT_SECONDS = 1.0


class StepAgreement:
    """Connects the processes about once a second, by the pace of the first one. One that is alone need not compare."""

    def __init__(
        self, link: Link, context: RoundContext, is_late: Callable[[], bool], has_ended: Callable[[], bool]
    ) -> None:
        """Begin when the processes have joined the run.

        Args:
            is_late: whether the replica should end its phase, as its first process finds.
            has_ended: whether the run has ended, as far as this process knows.
        """
        self._link, self._context = link, context
        self._find_late, self._find_ended = is_late, has_ended
        self._is_over = self._is_late = False
        self._has_ended = has_ended()
        self._every, self._left = 1, 1
        self._began = context.clock.monotonic()
        if link.size > 1:
            context.stops.at_steps.set()

    @property
    def is_over(self) -> bool:
        """Whether the replica was asked to stop, as its processes have agreed."""
        return self._context.stops.asked.is_set() if self._link.size == 1 else self._is_over

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, as the processes have agreed."""
        return self._find_ended() if self._link.size == 1 else self._has_ended

    @property
    def is_late(self) -> bool:
        """Whether the replica should end its phase early, as its processes have agreed."""
        return self._find_late() if self._link.size == 1 else self._is_late

    def begin(self) -> None:
        """A new phase begins."""
        self._is_late = False

    def merged(self) -> None:
        """The processes have waited for the same exchange: each knows what the others know of the run's end."""
        if self._find_ended():
            self._end()

    def beat(self) -> None:
        """After an inner step; all processes call this. If the trainer is to return, `stops.trainer` is set now."""
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
            self._context.stops.at_steps.clear()
            if self._context.stops.asked.is_set():
                self._context.stops.trainer.set()
        return self.is_over

    def _compare(self) -> None:
        now = self._context.clock.monotonic()
        late = self._link.rank == 0 and self._find_late()
        answers = self._link.gather((self._context.stops.asked.is_set(), now - self._began, late, self._find_ended()))
        # At most twice as many steps as before: the first ones may be quick.
        steps = int(self._every * BEAT_SECONDS / max(answers[0][1], 1e-6))
        self._every = max(1, min(2 * self._every, steps))
        self._left, self._began = self._every, now
        self._is_late = answers[0][2]
        if any(has_ended for *_, has_ended in answers):
            self._end()
        if any(asked for asked, *_ in answers):
            self._is_over = True
            # SIGTERM may not have reached this process yet.
            self._context.stops.asked.set()
            self._context.stops.trainer.set()

    def _end(self) -> None:
        self._has_ended = True
        self._context.stops.trainer.set()
