"""Cancelling a run: the one way for the SDK, the command line, TorchX and the executor."""

from __future__ import annotations

import getpass
import time

from pydantic import Field

from muster.client.aws.cloud import Cloud
from muster.client.client_errors import ClusterReplicaError, NoJobError, PlacedReplicaError, UnknownReplicaError
from muster.client.runs.observer import Observer
from muster.client.runs.run_status import ReplicaStatus
from muster.contract.document import Document

# A launch takes a few seconds; what takes longer waits for something.
_LAUNCH_SECONDS = 30.0


class Cancellation(Document):
    """What a cancellation stopped."""

    run: str = Field(description="the run that was named")
    stopped: tuple[str, ...] = Field(
        description="the runs that were stopped: that run, its last continuation, or both; empty when all had ended"
    )


def cancel(cloud: Cloud, run: str, poll_seconds: float) -> Cancellation:
    """Stop `run` and, if it has been continued, its last continuation. Waits for one that is about to start."""
    name: str | None = run
    stopped: list[str] = []
    while name is not None:
        if cloud.executions.describe(name).ended_at is None and cloud.executions.stop(name, _cause()):
            stopped.append(name)
            # The continuation policy starts a continuation shortly before the execution ends. One that starts later is
            # stopped by the control plane.
            name = Observer(cloud, name).continuation()
        else:
            name = _continuation(cloud, name, poll_seconds)
    return Cancellation(run=run, stopped=tuple(stopped))


def _cause() -> str:
    """Who cancels, as the run's reason says it."""
    try:
        return f"cancelled by {getpass.getuser()}"
    except (ImportError, KeyError, OSError):  # a container may have no names of users
        return "cancelled by a client of Muster"


def cancel_replica(cloud: Cloud, run: str, rank: int, poll_seconds: float) -> str | None:
    """Stop the training job of the replica `rank`. Returns its name, None if the replica has ended.

    Raises:
        NoJobError: for half a minute there was none.
        ClusterReplicaError: it is on a cluster.
        PlacedReplicaError: it is in another place than the stack's own.
        UnknownReplicaError: the run has no replica of this rank.
    """
    observer, deadline = Observer(cloud, run), time.monotonic() + _LAUNCH_SECONDS
    while True:
        status = observer.look()
        replicas = len(status.replicas) if status.seats is None else status.seats.most
        if not 0 <= rank < replicas:
            raise UnknownReplicaError.of_ranks(run, [rank], replicas)
        replica = next((one for one in status.replicas if one.rank == rank), ReplicaStatus(rank=rank))
        if status.state.is_terminal or replica.has_ended:
            return None
        if replica.may_have_job and replica.job is not None and replica.cluster is not None:
            raise ClusterReplicaError(run, rank, replica.job, replica.cluster.namespace)
        if replica.may_have_job and replica.where is not None and not replica.where.is_home:
            raise PlacedReplicaError(run, rank, replica.where.place)
        if replica.may_have_job and replica.job is not None and cloud.jobs.stop(replica.job):
            return replica.job
        if time.monotonic() > deadline:
            raise NoJobError(run, rank, _LAUNCH_SECONDS)
        time.sleep(poll_seconds)


def _continuation(cloud: Cloud, ended: str, poll_seconds: float) -> str | None:
    observer = Observer(cloud, ended)
    while True:
        # Read before the continuation is looked up, so that one that starts in between is found.
        may_follow = observer.may_be_continued()
        found = observer.continuation()
        if found is not None or not may_follow:
            return found
        time.sleep(poll_seconds)
