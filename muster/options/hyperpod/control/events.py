"""The events of clusters, and the ends that nothing reports. Everything heavy is imported by what uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from muster.contract.backend import Backend
from muster.control.runtime.function import logger
from muster.control.runtime.parallel import each_that_succeeds
from muster.control.service_events import ServiceEvents

if TYPE_CHECKING:
    from muster.control.active_run import ActiveReplica, ActiveRun
    from muster.control.control_plane import ControlPlane
    from muster.control.react import Reaction
    from muster.control.runtime.clock import TimeBudget

_CONCLUSION_SECONDS = 30.0


def heed(plane: ControlPlane, event: Mapping[str, object], budget: TimeBudget) -> list[Reaction] | None:
    """Look at the jobs of a cluster that an event of HyperPod is about."""
    from muster.options.hyperpod.contract.wake_events import cluster_of, is_of_cluster  # noqa: PLC0415

    if not is_of_cluster(event):
        return None
    cluster = cluster_of(event)
    if cluster is None:
        return []
    from muster.options.hyperpod.control.heeding import heed_cluster  # noqa: PLC0415

    return heed_cluster(plane, cluster, budget)


def conclude(plane: ControlPlane, run: ActiveRun, budget: TimeBudget) -> None:
    """Wait a little for the ends of stopped jobs: nothing reports that of a job whose pods have never run.

    An error here is not one of the stop: the re-arm finds the same ends.
    """
    from muster.options.hyperpod.control.cluster_look import look_until_ended  # noqa: PLC0415

    errors: list[str] = []
    seconds = min(_CONCLUSION_SECONDS, budget.remaining / 2)

    def conclude_replica(replica: ActiveReplica) -> None:
        record = replica.record().record
        if replica.spec.backend is Backend.HYPERPOD and record is not None and record.decision is None:
            look_until_ended(plane, replica, record.current, seconds)

    each_that_succeeds(conclude_replica, run.replicas, errors, lambda replica: f"replica {replica.rank}")
    if errors:
        logger.warning("ends on clusters are left to the re-arm", extra={"errors": errors})


OFFER = ServiceEvents(Backend.HYPERPOD, heed, conclude)
