"""A job on a cluster as a look has found it, and how the record of its attempt learns of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from muster.contract.aws.job_status import WAITING_FOR_QUOTA
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Record, Wait
from muster.control.documents import Change, Updated
from muster.control.jobs import Job
from muster.control.runtime import clock
from muster.control.runtime.function import count
from muster.options.hyperpod.contract.job_history import with_state
from muster.options.hyperpod.contract.job_state import IMAGE_ERROR, STARTUP_DEADLINE, JobState, waits_for_image


@dataclass(frozen=True, kw_only=True)
class JobOnCluster(Job):
    """A job as a look has found it. No event carries its history, so each look adds to it."""

    state: JobState

    def applied_to(self, attempt: Attempt, *, stopping: bool) -> Attempt:
        """`attempt` as this job shows it; `stopping`: its run is being stopped."""
        job: Job = self
        if (
            self.end is not None
            and self.end.secondary == STARTUP_DEADLINE
            and any(waits_for_image(step.message) for step in attempt.history[-1:])
        ):
            # Its pods are gone by now; an earlier look has seen why they waited.
            job = replace(self, secondary=IMAGE_ERROR)
        return Job.applied_to(job, with_state(attempt, self.state, clock.now()), stopping=stopping)


def note_look(update: Callable[[Change], Updated], job: Job | None, wait: Wait | None = None) -> None:
    """Write what a look has found into the record of the current attempt, with `update`.

    Only from now on is a job that is not there any more known to have been deleted. `wait` is over with it.
    """
    if job is None:
        return
    waited = False

    def change(record: Record | None) -> Record | None:
        nonlocal waited
        if record is None or record.current.job != job.name or record.decision is not None:
            return None
        seen = job.applied_to(record.current, stopping=False)
        waited = seen.secondary == WAITING_FOR_QUOTA != record.current.secondary
        left = None if record.wait == wait else record.wait
        return record.model_copy(update={"attempts": (*record.attempts[:-1], seen), "wait": left})

    if update(change).written and waited:
        count("ReplicaWaitsForQuota")
