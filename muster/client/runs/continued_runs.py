"""Runs and their continuations: which of them a name currently refers to."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import RunStatus
from muster.client.sdk import POLL_SECONDS, Muster, Run


class Latest(NamedTuple):
    """The last continuation of a run, or the run itself."""

    run: Run
    status: RunStatus
    """`stopping`, never an end, while the continuation policy is about to start another continuation."""
    restarts: int
    """How often a replica or the whole run was started again, in all these runs together."""


def latest(muster: Muster, name: str) -> Latest:
    """The last continuation of the run `name`; a run that has not failed has none here."""
    run, before = muster.run(name), 0
    while True:
        status = run.status()
        if status.awaits_continuation:
            status = status.model_copy(update={"state": RunState.STOPPING})
        if status.continued_by is None or status.state is not RunState.FAILED:
            return Latest(run, status, before + status.reruns)
        before += 1 + status.reruns
        run = muster.run(status.continued_by)


def generations(muster: Muster, name: str, *, wait: bool) -> Iterator[Run]:
    """The run `name` and its continuations, in order.

    With `wait`, each must have ended before the next is asked for, and one that is about to start is waited for.
    """
    run: Run | None = muster.run(name)
    while run is not None:
        yield run
        status = run.status()
        while wait and status.awaits_continuation:
            time.sleep(POLL_SECONDS)
            status = run.status()
        run = None if status.continued_by is None else muster.run(status.continued_by)
