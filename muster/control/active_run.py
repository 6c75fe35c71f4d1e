"""One run with its plan, its documents and its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from muster.contract.aws.job_status import JobStatus
from muster.contract.names import JobName
from muster.contract.run.job_request import own_tags
from muster.contract.run.orphans import ActiveJob
from muster.contract.run.plan import Plan
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.documents import RunDocuments


@dataclass(frozen=True)
class ActiveRun:
    """A planned run: every function except plan works on one."""

    plan: Plan
    documents: RunDocuments
    jobs: Jobs

    def job_name(self, rank: int, attempt: int) -> JobName:
        """The name of an attempt's job."""
        return JobName(self.plan.place.job_prefix, self.plan.run, rank, attempt)

    def owns(self, tags: Mapping[str, str], rank: int, attempt: int) -> bool:
        """Whether a job with these tags belongs to this run. Only this method decides that; a name proves nothing.

        The user's own tags are not compared: people and tag policies change them on running jobs.
        """
        return own_tags(self.plan, rank, attempt).items() <= tags.items()

    def own_jobs(self, status: JobStatus) -> list[ActiveJob]:
        """This run's jobs in `status`, without jobs of others that have its names."""
        listed = self.jobs.under_names_of(self.plan.place.job_prefix, self.plan.run, status)
        return [job for job in listed if self.owns(self.jobs.tags(job.arn), job.name.rank, job.name.attempt)]


class Runs:
    """The runs of a stack. Plans never change, so a warm function reads each plan once."""

    _CACHED = 32

    def __init__(self, store: Store, jobs: Jobs) -> None:
        self._store = store
        self._jobs = jobs
        self._plans: dict[str, Plan] = {}

    def find(self, run: str) -> ActiveRun | None:
        """The run of that name, or None."""
        documents = RunDocuments(self._store, run)
        plan = self._plans.get(run) or documents.plan()
        return None if plan is None else self._remember(plan, documents)

    def require(self, run: str) -> ActiveRun:
        """The run of that name.

        Raises:
            DocumentError: it has no plan.
        """
        documents = RunDocuments(self._store, run)
        return self._remember(self._plans.get(run) or documents.require_plan(), documents)

    def _remember(self, plan: Plan, documents: RunDocuments) -> ActiveRun:
        if len(self._plans) >= self._CACHED:
            self._plans.clear()
        self._plans[plan.run] = plan
        return ActiveRun(plan, documents, self._jobs)
