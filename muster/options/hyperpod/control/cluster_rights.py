"""The rights of pods on clusters, once no job of their run is left: deleted at the run's end, and by the sweep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import each_that_succeeds
from muster.control.stop import StillRunningError
from muster.options.hyperpod.control.run_identity import Association, RunIdentities, cluster_places

if TYPE_CHECKING:
    from muster.contract.run.plan import Plan
    from muster.contract.training.clusters import Clusters
    from muster.options.hyperpod.control.cluster_apis import ClusterApis
    from muster.options.hyperpod.control.cluster_jobs import ClusterJobs

_Place = tuple[str, str]
"""A cluster and a namespace."""


class Places(Protocol):
    """The clusters of a stack."""

    clusters: Clusters
    patience: TimeBudget

    @cached_property
    def apis(self) -> ClusterApis:
        """Their APIs."""

    def namespace(self, cluster: str, namespace: str) -> ClusterJobs:
        """The jobs in a namespace."""


def remove_rights(service: Places, plan: Plan, budget: TimeBudget) -> None:
    """Delete the service accounts of a run that has ended, and what gives them their rights.

    Raises:
        StillRunningError: a job of the run is still ending, and its pods write their results with these rights.
    """
    identities = RunIdentities(service.apis, plan.place.job_prefix)
    for place in cluster_places(plan):
        if not place.own_account:
            _remove(identities, service, (place.cluster, place.namespace), plan.run, budget)


def sweep_rights(
    service: Places,
    job_prefix: str,
    live_runs: Callable[[], Collection[str]],
    young_seconds: float,
    errors: list[str],
) -> None:
    """Delete what is left of runs that are not among `live_runs`, the running ones, on all clusters of the stack."""
    now, identities = clock.utc_now(), RunIdentities(service.apis, job_prefix)

    def sweep(one: Association) -> None:
        if one.run not in live and identities.is_older(one, young_seconds, now):
            _remove(identities, service, (one.cluster, one.namespace), one.run, service.patience)

    names = [cluster.name for cluster in service.clusters.clusters]
    listed: Sequence[list[Association]] = each_that_succeeds(identities.listed, names, errors, str)
    found = [one for of_cluster in listed for one in of_cluster]
    # After the listing: what a run that starts in between has been given is not in it.
    live = live_runs()
    each_that_succeeds(sweep, found, errors, lambda one: f"the rights of the pods of {one.run} on {one.cluster}")


def _remove(identities: RunIdentities, service: Places, place: _Place, run: str, budget: TimeBudget) -> None:
    jobs = service.namespace(*place)
    left = sum(1 for _ in jobs.under_names_of(identities.job_prefix, run))
    if left:
        message = f"{left} jobs of {run} are still ending in {jobs.place}"
        raise StillRunningError(message)
    identities.remove(*place, run, budget)
