"""Jobs on HyperPod clusters as a backend of the control plane. Everything heavy is imported by what uses it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from muster.contract.backend import Backend
from muster.contract.training.cluster_fields import HyperPod
from muster.control.backends import ServiceOffer
from muster.control.jobs import HasPatience, Patient
from muster.control.runtime.clock import TimeBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from muster.contract.run.plan import Plan
    from muster.contract.spec.spec import Spec
    from muster.contract.training.clusters import Clusters
    from muster.control.aws.clients import Clients
    from muster.control.runtime.function_settings import FunctionEnvironment
    from muster.options.hyperpod.control.cluster_apis import ClusterApis
    from muster.options.hyperpod.control.cluster_jobs import ClusterJobs
    from muster.options.hyperpod.control.run_identity import RunIdentities

_PREPARATION_SECONDS = 20.0  # of the minute of the function plan: after that the workflow tries again


class ClusterService(Patient):
    """The jobs in the namespaces of a stack's clusters (`muster.control.backends.JobService`)."""

    clearing = "take the rights of its pods away"

    def __init__(self, clients: Clients, clusters: Clusters) -> None:
        self.clusters = clusters
        self._clients = clients
        self._namespaces: dict[tuple[str, str], ClusterJobs] = {}

    @classmethod
    def opened(cls, clients: Clients, settings: FunctionEnvironment) -> ClusterService:
        """For a function's stack."""
        return cls(clients, settings.clusters)

    @cached_property
    def apis(self) -> ClusterApis:
        """The APIs of the clusters."""
        from muster.options.hyperpod.control.cluster_apis import ClusterApis  # noqa: PLC0415
        from muster.options.hyperpod.control.cluster_clients import ClusterClients  # noqa: PLC0415

        return ClusterApis(self._clients.part(ClusterClients), self.clusters)

    def _patients(self) -> list[HasPatience]:
        return [*self._namespaces.values()]

    def of(self, spec: Spec) -> ClusterJobs:
        """The jobs in the place that the planned spec of a rank names."""
        asked = spec.hyperpod or HyperPod()
        return self.namespace(asked.cluster or "", asked.namespace or "")

    def namespace(self, cluster: str, namespace: str) -> ClusterJobs:
        """The jobs in a namespace of a cluster, always as the same object."""
        found = self._namespaces.get((cluster, namespace))
        if found is None:
            from muster.options.hyperpod.control.cluster_jobs import ClusterJobs  # noqa: PLC0415

            found = ClusterJobs(self.apis, cluster, namespace)
            found.patience = self._patience
            found = self._namespaces.setdefault((cluster, namespace), found)
        return found

    def every(self) -> list[ClusterJobs]:
        """The jobs in all namespaces of the stack's clusters."""
        return [jobs for cluster in self.clusters.clusters for jobs in self.of_cluster(cluster.name)]

    def of_cluster(self, name: str) -> list[ClusterJobs]:
        """The jobs in all namespaces of a cluster; none where the stack does not have it."""
        cluster = self.clusters.named(name)
        return [] if cluster is None else [self.namespace(name, namespace) for namespace in cluster.namespaces]

    def prepare(self, plan: Plan, role_arn: str | None) -> None:
        """Let the run's jobs be created on its clusters, and give their pods their rights.

        Raises:
            SpecError: a cluster cannot be used.
        """
        self._identities(plan.place.job_prefix).prepare(plan, role_arn, TimeBudget.of(_PREPARATION_SECONDS))

    def clear_up(self, plan: Plan, budget: TimeBudget) -> None:
        """Take the rights of a run's pods away.

        Raises:
            StillRunningError: a job of the run is still ending.
        """
        self._identities(plan.place.job_prefix).remove(plan, budget)

    def sweep(
        self, job_prefix: str, live_runs: Callable[[], Collection[str]], young_seconds: float, errors: list[str]
    ) -> None:
        """Take the rights of pods of other runs away, on all clusters of the stack."""
        if self.clusters.clusters:
            self._identities(job_prefix).sweep(live_runs, young_seconds, errors)

    def _identities(self, job_prefix: str) -> RunIdentities:
        from muster.options.hyperpod.control.run_identity import RunIdentities  # noqa: PLC0415

        return RunIdentities(self.apis, self.namespace, job_prefix)


OFFER = ServiceOffer(Backend.HYPERPOD, ClusterService.opened)
