"""The trainer of `muster verify`: a few numbers, four rounds, one failure on purpose.

The first attempt of rank 1 leaves two files among its checkpoints and fails. The second attempt must find both, and
deletes one of them. Every attempt prints what it finds in its container, as one line of JSON.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from muster import Context, DiLoCo

ON_PURPOSE = "this failure is part of muster verify"


class Steps:
    """How many inner steps this replica has made, in all its attempts: restored with the trainer's state."""

    def __init__(self) -> None:
        self.made = 0

    def state_dict(self) -> dict[str, Any]:
        """The number of steps."""
        return {"made": self.made}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue to count."""
        self.made = state["made"]


def train(
    context: Context, *, rounds: int, failing_rank: int, fails_after: int, kept: str, deleted: str, mark: str
) -> None:
    """Train three numbers; the first attempt of `failing_rank` fails after `fails_after` rounds."""
    folder = context.checkpoint_dir
    report = {
        "rank": context.rank,
        "attempt": context.attempt,
        "restored": [name for name in (kept, deleted) if (folder / name).is_file()],
    }
    steps, numbers = Steps(), np.zeros(3, np.float32)
    outer = DiLoCo(context.rendezvous, {"numbers": numbers}, trainer_state={"steps": steps}, checkpoint_dir=folder)
    print(mark + json.dumps({**report, "round": outer.round, "steps": steps.made}), flush=True)
    if context.attempt > 1:
        (folder / deleted).unlink(missing_ok=True)
    while outer.round < rounds and not context.stop.is_set():
        numbers -= context.rank + 1
        steps.made += 1
        outer.step()
        context.metrics.log(loss=1.0 / outer.round)
        if context.rank == failing_rank and context.attempt == 1 and outer.round == fails_after:
            for name in (kept, deleted):
                (folder / name).write_text(context.run)
            raise RuntimeError(ON_PURPOSE)
    outer.finish()
