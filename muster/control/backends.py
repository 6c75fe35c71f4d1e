"""The services that run the jobs of replicas, and which of them a replica uses."""

from __future__ import annotations

from typing import NamedTuple

from muster.contract.hyperpod.backend import Backend
from muster.contract.run.orphans import ActiveJob
from muster.contract.run.plan import Plan
from muster.contract.spec.spec import Spec
from muster.control.jobs import Jobs
from muster.control.runtime.time_budget import TimeBudget


class PlacedJob(NamedTuple):
    """An active job, and the service that runs it."""

    jobs: Jobs
    job: ActiveJob


class Backends:
    """All services of a stack: the training jobs of its account and region."""

    def __init__(self, training: Jobs) -> None:
        self.training = training

    @property
    def patience(self) -> TimeBudget:
        """How long throttled calls are tried again."""
        return self.training.patience

    @patience.setter
    def patience(self, budget: TimeBudget) -> None:
        self.training.patience = budget

    def of(self, spec: Spec) -> Jobs:
        """The service that runs the jobs of a replica; `spec` is that of its rank."""
        if spec.backend is Backend.TRAINING_JOB:
            return self.training
        message = f"no jobs run on {spec.backend.value}"
        raise NotImplementedError(message)

    def of_rank(self, plan: Plan, rank: int) -> Jobs:
        """The service that runs the jobs of replica `rank`."""
        # A run has up to 10,000 replicas, and nearly all have one backend.
        return self.of(plan.spec.of_rank(rank) if plan.spec.overrides else plan.spec)

    def used_by(self, plan: Plan) -> list[Jobs]:
        """The services that the replicas of a run use, each once."""
        if not plan.spec.overrides:
            return [self.of(plan.spec)]
        used = (self.of_rank(plan, rank) for rank in range(plan.spec.replicas))
        return list({id(jobs): jobs for jobs in used}.values())

    def active(self, prefix: str) -> list[PlacedJob]:
        """The running jobs of all services with names under `prefix`."""
        return [PlacedJob(jobs, job) for jobs in self.every() for job in jobs.active(prefix)]

    def every(self) -> list[Jobs]:
        """All services of the stack."""
        return [self.training]
