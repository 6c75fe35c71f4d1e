"""Why a process should end, and who tells its trainer."""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event


@dataclass(frozen=True)
class Stops:
    """The reasons to end: `asked` by SIGTERM; the `trainer` should return, for that reason or because the run ended.

    While `at_steps` is set, a front end tells the trainer of either, in all processes after the same inner step.
    """

    asked: Event = field(default_factory=Event)
    trainer: Event = field(default_factory=Event)
    at_steps: Event = field(default_factory=Event)

    def terminate(self) -> None:
        """SIGTERM was received."""
        self.asked.set()
        self.ask_trainer()

    def ask_trainer(self) -> None:
        """The trainer should return: now, or when a front end says so."""
        if not self.at_steps.is_set():
            self.trainer.set()
