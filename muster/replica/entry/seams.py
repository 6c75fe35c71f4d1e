"""What options add to the process of a replica while its trainer is called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from muster.contract.run.run_document import RunDocument
from muster.replica.replica_errors import WatchError
from muster.replica.rounds.round import Rounds
from muster.replica.statistics.metrics import Listener


@dataclass(frozen=True)
class Listeners:
    """Who gets what the trainer logs, in a replica's first process: the seam `replica.listeners`."""

    open: Callable[[RunDocument, int, Path], Listener]
    """For a rank; SageMaker copies files of the folder. Raises InputError where the image lacks packages."""


EndNow = Callable[[WatchError], None]
"""Ends this process and its replica's attempt, from any thread."""


@dataclass(frozen=True)
class Watching:
    """Who looks at a training as long as its trainer is called: the seam `replica.watching`."""

    during: Callable[[Rounds, RunDocument, EndNow], AbstractContextManager[None]]
