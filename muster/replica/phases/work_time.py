"""For how long the trainer has worked on the samples of a contribution: the time between the front end's calls."""

from __future__ import annotations

from muster.replica.rounds.round_context import Clock


class WorkTime:
    """Seconds of work since each fragment was last exchanged."""

    def __init__(self, fragments: int, clock: Clock) -> None:
        self._clock = clock
        self._seconds = [0.0] * fragments
        self._since = clock.monotonic()

    def pause(self) -> None:
        """The trainer calls the front end: what follows is no work of its own."""
        worked = self._clock.monotonic() - self._since
        self._seconds = [before + worked for before in self._seconds]

    def go_on(self) -> None:
        """The trainer works again."""
        self._since = self._clock.monotonic()

    def given(self, fragment: int) -> float:
        """The seconds of a fragment that is exchanged; they begin again."""
        seconds, self._seconds[fragment] = self._seconds[fragment], 0.0
        return seconds

    def start_over(self) -> None:
        """What was done so far counts for no round."""
        self._seconds = [0.0] * len(self._seconds)
