"""Stop: no job of the run goes on. Fence first, then every job, then a look whether that was all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from muster.contract.aws.job_status import JobStatus
from muster.contract.names import RUN_MAX
from muster.contract.run.fence import Fence
from muster.control.active_run import ActiveRun
from muster.control.runtime.parallel import in_parallel
from muster.control.runtime.time_budget import Deadline

# Between two looks. StopTrainingJob: SIGTERM, then 120 seconds until SIGKILL; after that the artifacts are uploaded.
LOOK_SECONDS = 5.0
# List may lag behind a job that was just created: one empty look proves nothing.
_EMPTY_LOOKS = 2
_REASON_MAX = 1_024


class StopRequest(BaseModel):
    """What the workflow sends when a run has lost what it needs."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]
    # The workflow puts the cause of an error here, which has up to 32,768 characters.
    reason: Annotated[str, BeforeValidator(lambda value: str(value)[:_REASON_MAX])]


class StillRunningError(Exception):
    """Jobs of the run were still there when time was up; the function is called again."""


def raise_fence_and_stop(run: ActiveRun, fence: Fence) -> None:
    """Let nothing more start, and ask every job of the run to stop.

    Raises:
        Exception: the first error of a replica, after all of them have been asked.
    """
    run.documents.raise_fence(fence)
    in_parallel(lambda rank: _stop_replica(run, rank), range(run.plan.spec.replicas))


def _stop_replica(run: ActiveRun, rank: int) -> None:
    record = run.documents.record(rank).record
    if record is None or record.decision is not None:
        return
    current = record.current
    # A status comes from an event that has shown the job to be ours; before the first one, the job itself must.
    if current.status or _is_own(run, rank, current.attempt, current.job):
        run.jobs.stop(current.job)


def _is_own(run: ActiveRun, rank: int, attempt: int, name: str) -> bool:
    job = run.jobs.find(name)
    return job is not None and run.owns(run.jobs.tags(job.arn), rank, attempt)


def verify_stopped(run: ActiveRun, deadline: Deadline, pause: Callable[[float], None]) -> None:
    """Look until no job of the run is active, stopping again what was missed.

    Raises:
        StillRunningError: some are left at the deadline.
    """
    empty = 0
    while True:
        missed = run.own_jobs(JobStatus.IN_PROGRESS)
        left = len(missed) + len(run.own_jobs(JobStatus.STOPPING))
        empty = 0 if left else empty + 1
        if empty == _EMPTY_LOOKS:
            return
        if deadline.passed:
            message = f"{left} jobs of {run.plan.run} are still active"
            raise StillRunningError(message)
        in_parallel(lambda job: run.jobs.stop(str(job.name)), missed)
        pause(LOOK_SECONDS)
