"""Weights & Biases: one W&B run for each replica, in the group of the run; offline unless the spec says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.contract.spec.metric_sinks import WandbSink
from muster.options.sinks.replica.writer import Identity, Record
from muster.replica.statistics.metrics import Ending

STEP = "step"
"""The metric that charts have as their x-axis: W&B's own counter of steps may not go back, as a rerun does."""


class WandbRun:
    """A W&B run whose id follows from the names, so that reruns continue it."""

    name = "wandb"

    def __init__(self, settings: WandbSink, identity: Identity, folder: Path) -> None:
        """`folder`: W&B keeps its files below it, in `wandb/`."""
        self._settings = settings
        self._identity = identity
        self._folder = folder
        self._run: Any = None

    def write(self, records: Sequence[Record]) -> None:
        """Log the records."""
        run = self._run or self._opened()
        self._run = run
        for record in records:
            run.log({**record.values, STEP: record.step, "_timestamp": record.at})

    def close(self, ending: Ending) -> None:
        """End this process's part of the W&B run."""
        self._run.finish(exit_code=0 if ending is Ending.DONE else 1)

    def _opened(self) -> Any:
        import wandb  # noqa: PLC0415 - the user's package

        identity, settings = self._identity, self._settings
        self._folder.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            project=settings.project,
            entity=settings.entity,
            mode=settings.mode,
            id=identity.unique_name,
            name=identity.name,
            group=identity.run,
            config={"run": identity.run, "rank": identity.rank},
            dir=self._folder,
            resume="allow",
            # The trainer may use W&B as well: its run is another one.
            reinit="create_new",
            settings=wandb.Settings(console="off", silent=True),
        )
        run.define_metric(STEP, hidden=True)
        run.define_metric("*", step_metric=STEP)
        return run
