"""The rights of pods on clusters, once no job of their run is left: deleted at the run's end, and by the sweep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.parallel import each_that_succeeds
from muster.control.stop import StillRunningError
from muster.options.hyperpod.control.run_identity import Association, RunIdentities, cluster_places

if TYPE_CHECKING:
    from muster.contract.run.plan import Plan
    from muster.options.hyperpod.control.cluster_jobs import ClusterJobs

JobsIn = Callable[[str, str], "ClusterJobs"]
"""The jobs in a namespace of a cluster."""


def remove_rights(identities: RunIdentities, jobs_in: JobsIn, plan: Plan, budget: TimeBudget) -> None:
    """Delete the service accounts of a run that has ended, and what gives them their rights.

    Raises:
        StillRunningError: a job of the run is still ending, and its pods write their results with these rights.
    """
    for place in cluster_places(plan):
        if not place.own_account:
            _remove(identities, jobs_in(place.cluster, place.namespace), plan.run, budget)


def sweep_rights(
    identities: RunIdentities,
    jobs_in: JobsIn,
    live_runs: Callable[[], Collection[str]],
    young_seconds: float,
    errors: list[str],
) -> None:
    """Delete what is left of runs that are not among `live_runs`, the running ones, on all clusters of the stack."""
    now = clock.utc_now()

    def sweep(one: Association) -> None:
        if one.run not in live and identities.is_older(one, young_seconds, now):
            jobs = jobs_in(one.cluster, one.namespace)
            _remove(identities, jobs, one.run, jobs.patience)

    names = [cluster.name for cluster in identities.apis.clusters.clusters]
    listed: Sequence[list[Association]] = each_that_succeeds(identities.listed, names, errors, str)
    found = [one for of_cluster in listed for one in of_cluster]
    # After the listing: what a run that starts in between has been given is not in it.
    live = live_runs()
    each_that_succeeds(sweep, found, errors, lambda one: f"the rights of the pods of {one.run} on {one.cluster}")


def _remove(identities: RunIdentities, jobs: ClusterJobs, run: str, budget: TimeBudget) -> None:
    left = sum(1 for _ in jobs.under_names_of(identities.job_prefix, run))
    if left:
        message = f"{left} jobs of {run} are still ending in {jobs.place}"
        raise StillRunningError(message)
    identities.remove(jobs.cluster, jobs.namespace, run, budget)
