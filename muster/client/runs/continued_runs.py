"""Runs that go on as others: which of them a name stands for now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from muster.client.runs.run_status import RunState, RunStatus
from muster.client.sdk import POLL_SECONDS, Muster, Run


class Latest(NamedTuple):
    """The run as which another one goes on, or that one itself."""

    run: Run
    status: RunStatus
    """Never an end while the rerun policy is about to start another run."""
    restarts: int
    """How often a replica or the whole run has begun again, all runs together."""


def latest(muster: Muster, name: str) -> Latest:
    """The last of the runs that began as `name` and failed but for it.

    Raises:
        UnknownRunError: there is no such run.
        ClientError: the cloud cannot be reached or refuses.
    """
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
    """The run `name` and those as which it goes on, in their order.

    With `wait` each is to have ended before the next is asked for, which is waited for where it is about to start.

    Raises:
        UnknownRunError: there is no such run.
        ClientError: the cloud cannot be reached or refuses.
    """
    run: Run | None = muster.run(name)
    while run is not None:
        yield run
        status = run.status()
        while wait and status.awaits_continuation:
            time.sleep(POLL_SECONDS)
            status = run.status()
        run = None if status.continued_by is None else muster.run(status.continued_by)


def cancel(muster: Muster, name: str) -> None:
    """Stop the last of the runs that began as `name`; one that is about to start is waited for.

    Raises:
        UnknownRunError: there is no such run.
        ClientError: the cloud cannot be reached or refuses.
    """
    found = latest(muster, name)
    while found.status.awaits_continuation:
        time.sleep(POLL_SECONDS)
        found = latest(muster, name)
    found.run.cancel()
