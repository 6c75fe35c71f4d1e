"""The services that run the jobs of replicas, and which of them a replica uses."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from muster.contract.backend import Backend
from muster.contract.run.orphans import ActiveJob
from muster.contract.run.plan import Plan
from muster.contract.spec.spec import Spec
from muster.contract.training.clusters import Clusters
from muster.control.jobs import Jobs
from muster.control.runtime.time_budget import TimeBudget

if TYPE_CHECKING:
    from muster.options.hyperpod.control.cluster_apis import ClusterApis
    from muster.options.hyperpod.control.cluster_jobs import ClusterJobs


class PlacedJob(NamedTuple):
    """An active job, and the service that runs it."""

    jobs: Jobs
    job: ActiveJob


class Backends:
    """All services of a stack: the training jobs of its account and region, and the namespaces of its clusters."""

    def __init__(self, training: Callable[[], Jobs], clusters: Clusters, apis: Callable[[], ClusterApis]) -> None:
        """`training` and `apis` open the services when one is first used."""
        self._open_training = training
        self.clusters = clusters
        self._open_apis = apis
        self._namespaces: dict[tuple[str, str], ClusterJobs] = {}
        self._patience = TimeBudget(-math.inf)

    @cached_property
    def training(self) -> Jobs:
        """The training jobs."""
        return self._open_training()

    @cached_property
    def apis(self) -> ClusterApis:
        """The APIs of the clusters."""
        return self._open_apis()

    @property
    def patience(self) -> TimeBudget:
        """How long throttled calls are tried again."""
        return self._patience

    @patience.setter
    def patience(self, budget: TimeBudget) -> None:
        self._patience = budget
        self.training.patience = budget
        for jobs in list(self._namespaces.values()):
            jobs.patience = budget

    def of(self, spec: Spec) -> Jobs:
        """The service that runs the jobs of a replica; `spec` is that of its rank, as it was planned."""
        asked = spec.hyperpod
        if spec.backend is Backend.TRAINING_JOB or asked is None:
            return self.training
        return self.namespace(asked.cluster or "", asked.namespace or "")

    def namespace(self, cluster: str, namespace: str) -> ClusterJobs:
        """The jobs in a namespace of a cluster, always as the same object."""
        found = self._namespaces.get((cluster, namespace))
        if found is None:
            from muster.options.hyperpod.control.cluster_jobs import ClusterJobs  # noqa: PLC0415 - not without clusters

            found = ClusterJobs(self.apis, cluster, namespace)
            found.patience = self._patience
            found = self._namespaces.setdefault((cluster, namespace), found)
        return found

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

    def every(self) -> list[Jobs]:
        """All services of the stack."""
        places = ((cluster.name, namespace) for cluster in self.clusters.clusters for namespace in cluster.namespaces)
        return [self.training, *(self.namespace(*place) for place in places)]

    def of_cluster(self, name: str) -> list[ClusterJobs]:
        """The jobs in all namespaces of a cluster; none where the stack does not have it."""
        cluster = self.clusters.named(name)
        return [] if cluster is None else [self.namespace(name, namespace) for namespace in cluster.namespaces]
