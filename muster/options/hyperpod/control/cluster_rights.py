"""The rights of pods on clusters, once no job of their run is left: deleted at the run's end, and by the sweep."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from muster.control.active_run import ActiveRun
from muster.control.runtime import clock
from muster.control.runtime.parallel import each_that_succeeds
from muster.control.runtime.time_budget import TimeBudget
from muster.control.stop import StillRunningError

if TYPE_CHECKING:
    from muster.control.backends import Backends
    from muster.control.control_plane import ControlPlane
    from muster.options.hyperpod.control.run_identity import Association, RunIdentities

_Place = tuple[str, str]
"""A cluster and a namespace."""


def remove_rights(run: ActiveRun, budget: TimeBudget) -> None:
    """Delete the service accounts of a run that has ended, and what gives them their rights.

    Raises:
        StillRunningError: a job of the run is still ending, and its pods write their results with these rights.
    """
    from muster.options.hyperpod.control.run_identity import RunIdentities, cluster_places  # noqa: PLC0415 - not without any

    identities = RunIdentities(run.backends.apis, run.plan.place.job_prefix)
    for place in cluster_places(run.plan):
        if not place.own_account:
            _remove(identities, run.backends, (place.cluster, place.namespace), run.plan.run, budget)


def sweep_rights(
    plane: ControlPlane, live_runs: Callable[[], Collection[str]], young_seconds: float, errors: list[str]
) -> None:
    """Delete what is left of runs that are not among `live_runs`, the running ones, on all clusters of the stack."""
    from muster.options.hyperpod.control.run_identity import RunIdentities  # noqa: PLC0415 - not without clusters

    backends, now = plane.backends, clock.utc_now()
    identities = RunIdentities(backends.apis, plane.settings.job_prefix)

    def sweep(one: Association) -> None:
        if one.run not in live and identities.is_older(one, young_seconds, now):
            _remove(identities, backends, (one.cluster, one.namespace), one.run, backends.patience)

    names = [cluster.name for cluster in plane.settings.clusters.clusters]
    listed: Sequence[list[Association]] = each_that_succeeds(identities.listed, names, errors, str)
    found = [one for of_cluster in listed for one in of_cluster]
    # After the listing: what a run that starts in between has been given is not in it.
    live = live_runs()
    each_that_succeeds(sweep, found, errors, lambda one: f"the rights of the pods of {one.run} on {one.cluster}")


def _remove(identities: RunIdentities, backends: Backends, place: _Place, run: str, budget: TimeBudget) -> None:
    jobs = backends.namespace(*place)
    left = jobs.alive(identities.job_prefix, run)
    if left:
        message = f"{left} jobs of {run} are still ending in {jobs.place}"
        raise StillRunningError(message)
    identities.remove(*place, run, budget)
