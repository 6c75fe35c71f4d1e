"""Stop: no job of the run goes on. Fence first, then every job, then a look whether that was all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.errors import ForeignJobError
from muster.contract.fence import Fence
from muster.contract.names import RUN_MAX, JobName, run_name
from muster.contract.plan import Plan
from muster.contract.request import job_tags
from muster.contract.result import Verdict
from muster.contract.status import JobStatus
from muster.control import clock
from muster.control.aws import in_parallel
from muster.control.documents import RunDocuments
from muster.control.jobs import Jobs, Listed
from muster.control.settle import settle

# StopTrainingJob: SIGTERM, then 120 seconds until SIGKILL; after that the artifacts are uploaded.
_POLL_SECONDS = 5.0


class StopRequest(BaseModel):
    """What the workflow sends when a run has lost what it needs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]
    reason: Annotated[str, Field(max_length=32_768)]


class ExecutionEnded(BaseModel):
    """The detail of `Step Functions Execution Status Change`, as far as Muster reads it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    execution_arn: Annotated[str, Field(min_length=1, max_length=2_048, alias="executionArn")]
    name: Annotated[str, Field(min_length=1, max_length=80)]
    status: str

    @property
    def run(self) -> str:
        """The run of this execution."""
        return run_name(self.name)

    @property
    def fence(self) -> Fence:
        """Why the run stops, if nobody stopped it before."""
        if self.status == "ABORTED":
            return Fence(verdict=Verdict.STOPPED, reason="the execution was stopped", at=clock.now())
        return Fence(verdict=Verdict.FAILED, reason=f"the execution ended as {self.status}", at=clock.now())


class StillRunningError(Exception):
    """Jobs of the run were still there when time was up; the function is called again."""


def raise_fence_and_stop(documents: RunDocuments, jobs: Jobs, plan: Plan, fence: Fence) -> None:
    """Let nothing more start, and ask every job of the run to stop."""
    documents.raise_fence(fence)
    in_parallel(lambda rank: _stop_replica(documents, jobs, plan, rank), range(plan.spec.replicas))


def _stop_replica(documents: RunDocuments, jobs: Jobs, plan: Plan, rank: int) -> None:
    record = documents.record(rank).record
    if record is None or record.decision is not None:
        return
    # An event of the job has shown that it is ours; before the first one, the job itself must.
    if record.current.status or _found_ours(jobs, plan, JobName.parse(record.current.job, plan.place.job_prefix)):
        jobs.stop(record.current.job)


def _found_ours(jobs: Jobs, plan: Plan, name: JobName | None) -> bool:
    job = jobs.find(str(name)) if name else None
    return name is not None and job is not None and _is_ours(jobs, plan, Listed(name, job.arn))


def _is_ours(jobs: Jobs, plan: Plan, listed: Listed) -> bool:
    """Whether a job under one of our names is this run's: somebody else's is left alone."""
    try:
        jobs.require_ours(str(listed.name), listed.arn, job_tags(plan, listed.name.rank, listed.name.attempt))
    except ForeignJobError:
        return False
    return True


def verify_stopped(jobs: Jobs, plan: Plan, seconds: float, pause: Callable[[float], None] = time.sleep) -> None:
    """Look until no job of the run is active, stopping again what was missed.

    Raises:
        StillRunningError: some are left after about `seconds`.
    """
    waited = 0.0
    while True:
        missed = _active(jobs, plan, JobStatus.IN_PROGRESS)
        left = missed + _active(jobs, plan, JobStatus.STOPPING)
        if not left:
            return
        if waited >= seconds:
            message = f"{len(left)} jobs of {plan.run} are still active after {waited:.0f} seconds"
            raise StillRunningError(message)
        in_parallel(lambda job: jobs.stop(str(job.name)), missed)
        pause(_POLL_SECONDS)
        waited += _POLL_SECONDS


def _active(jobs: Jobs, plan: Plan, status: JobStatus) -> list[Listed]:
    return [job for job in jobs.of_run(plan.place.job_prefix, plan.run, status) if _is_ours(jobs, plan, job)]


def clear_up(documents: RunDocuments, jobs: Jobs, ended: ExecutionEnded, seconds: float) -> bool:
    """After an execution has ended for whatever reason: see its jobs gone, and settle. False: it had no run.

    Raises:
        StillRunningError: jobs are left after about `seconds`.
    """
    plan = documents.plan()
    # An execution that was refused because its name was taken must not stop the run that owns the name.
    if plan is None or plan.execution_arn != ended.execution_arn:
        return False
    if documents.result() is None:
        raise_fence_and_stop(documents, jobs, plan, ended.fence)
    verify_stopped(jobs, plan, seconds)
    settle(documents, jobs)
    return True
