"""The GPT example at a pace of its own: the trainer of the replicas of `places_run`.

A step learns from a small batch and then waits, so that replicas which share this machine's cores take as long for it
as each would on a machine of its own.
"""

from __future__ import annotations

import time
from unittest.mock import patch

from examples.char_gpt import trainer
from examples.char_gpt.learning import Learner
from muster.torch import Context

BATCH_SIZE = 1


def train(context: Context, *, step_seconds: float, **settings: float) -> None:
    """Train as the example does; no step takes less than `step_seconds`."""

    class Paced(Learner):
        """One whose steps last."""

        due = 0.0

        def step(self) -> float:
            """One step, and the rest of its time. What one step is late for, the next ones make up."""
            now = time.monotonic()
            self.due = (self.due if now - self.due < step_seconds else now) + step_seconds
            loss = super().step()
            time.sleep(max(0.0, self.due - time.monotonic()))
            return loss

    with patch.object(trainer, "Learner", Paced):
        trainer.train(context, batch_size=BATCH_SIZE, **settings)  # type: ignore[arg-type]
